"""One gateway process: what it holds, how it starts, how it says that it lives, how it stops."""

import asyncio
import gc
import logging
import os
import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection
from psycopg.types.json import Jsonb

from billing.estimation import family_of, preload_bounds
from billing.processes import LIFE_LOCK
from billing.writer import (
    ESTIMATE,
    EXTEND,
    HOLD,
    HOLD_ANSWER_S,
    HOLD_PAUSES_S,
    REFUSE,
    SETTLE,
    SETTLE_PAUSES_S,
    GroupCommit,
)
from gateway.relay.idempotency import Idempotency
from gateway.runtime.background import Background
from gateway.runtime.breakers import Breakers
from gateway.runtime.key_uses import WRITE_EVERY_S, KeyUses
from gateway.runtime.limits import RENEW_EVERY_S, Limiter
from gateway.runtime.listener import Listener
from gateway.runtime.pool import Pool
from gateway.runtime.principals import PrincipalCache
from gateway.runtime.recorder import Recorder
from gateway.runtime.snapshot import Snapshot, VendorAccess, load_snapshot
from gateway.runtime.spool import Spool
from gateway.upstream import Upstream
from keys.principals import CHANNEL as KEYS_CHANNEL

logger = logging.getLogger(__name__)

CATALOG_CHANNEL = "farthing_catalog"
HEARTBEAT_EVERY_S = 2.0
RELOAD_PAUSE_S = 0.5
FINISH_WITHIN_S = 8.0
CONNECT_TIMEOUT_S = 3
GC_THRESHOLDS = (20_000, 20, 50)
START_WITHIN_S = 30.0  # how long a gateway that starts waits for PostgreSQL
LOCK_TIMEOUT_MS = 250  # a tenant whose wallet is locked for longer is set aside
STATEMENT_TIMEOUT_MS = 10_000

WATCHFUL = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}

# A plan made while a table was small must not scan it when it is large: a batch is at most
# `BATCH_ITEMS` rows, which are looked up by their ids. And one plan is as good as another, so it
# is made once a connection: to make it takes longer than a settlement.
LEDGER_OPTIONS = (
    f"-c lock_timeout={LOCK_TIMEOUT_MS} -c statement_timeout={STATEMENT_TIMEOUT_MS}"
    " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
    " -c plan_cache_mode=force_generic_plan -c jit=off -c synchronous_commit=on"
)


async def connect(options: str = "") -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(
        database_url(),
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_S,
        options=options,
        application_name="farthing-gateway",
    )


def database_url() -> str:
    """DATABASE_URL, with the database's name as Django has it (tests use another).

    A host that is gone without a word is noticed by the kernel, unless the URL says otherwise.
    """
    name = str(settings.DATABASES["default"]["NAME"])
    said = psycopg.conninfo.conninfo_to_dict(settings.DATABASE_URL)
    unsaid = {option: value for option, value in WATCHFUL.items() if option not in said}
    return psycopg.conninfo.make_conninfo(settings.DATABASE_URL, dbname=name, **unsaid)


async def _wait_for_postgresql() -> None:
    async with asyncio.timeout(START_WITHIN_S):
        while True:
            try:
                await (await connect()).close()
            except psycopg.OperationalError as error:
                logger.warning("Waiting for PostgreSQL (%s)", type(error).__name__)
                await asyncio.sleep(RELOAD_PAUSE_S)
            else:
                return


@dataclass(slots=True)
class _Beats:
    """The process's row in the database, written anew if it got lost."""

    process_id: int = 0


class Runtime:
    """Made on the event loop's thread, inside the lifespan of the ASGI application."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.background = Background()
        self.pool = Pool(database_url(), connect_timeout_s=CONNECT_TIMEOUT_S)
        ledger = partial(connect, LEDGER_OPTIONS)
        self.holds = GroupCommit("holds", HOLD, ledger, HOLD_PAUSES_S, HOLD_ANSWER_S)
        self.extensions = GroupCommit("extensions", EXTEND, ledger, HOLD_PAUSES_S, HOLD_ANSWER_S)
        self.settlements = GroupCommit("settlements", SETTLE, ledger, SETTLE_PAUSES_S)
        self.estimates = GroupCommit("estimates", ESTIMATE, ledger, SETTLE_PAUSES_S)
        self.refusals = GroupCommit("refusals", REFUSE, ledger, SETTLE_PAUSES_S)
        self.recorder = Recorder()
        self.spool = Spool(Path(settings.SPOOL_DIR) if settings.SPOOL_DIR else None)
        self.listener = Listener(
            connect,
            {KEYS_CHANNEL: self._key_changed, CATALOG_CHANNEL: self._catalog_changed},
            lost=self._changes_lost,
            found=self._changes_found,
            greet=self._show_life,
        )
        self.principals = PrincipalCache(self.pool, lambda: self.listener.is_listening)
        self.key_uses = KeyUses(self.pool)
        self.idempotency = Idempotency(self.pool)
        self.limiter = Limiter(settings.REDIS_URL, settings.GATEWAY_WORKERS)
        self.breakers = Breakers()
        self._upstreams: dict[VendorAccess, Upstream] = {}
        self._stale = asyncio.Event()
        self._beats = _Beats()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def _writers(self) -> tuple[GroupCommit, ...]:
        return (self.holds, self.extensions, self.settlements, self.estimates, self.refusals)

    @property
    def process_id(self) -> int:
        return self._beats.process_id

    async def start(self) -> None:
        await _wait_for_postgresql()
        await self.pool.open(wait=True, timeout=CONNECT_TIMEOUT_S)
        await self._beat()
        self.snapshot = await asyncio.to_thread(_load)
        await self.recorder.start()
        _quiet_collector()
        for writer in self._writers:
            writer.start()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(work, name=name)
            for name, work in (
                ("listener", self.listener.run()),
                ("catalog", self._reload_when_stale()),
                ("heartbeat", self._every(HEARTBEAT_EVERY_S, self._beat)),
                ("key uses", self._every(WRITE_EVERY_S, self.key_uses.write)),
                ("leases", self._every(RENEW_EVERY_S, self.limiter.renew)),
                ("recorder", self.recorder.run()),
            )
        ]

    async def stop(self) -> None:
        """Let settlements end, write what is queued, say good-bye. Nothing is lost by an order."""
        await self.background.finish(FINISH_WITHIN_S)
        for writer in self._writers:
            await writer.close()
        await self.recorder.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for upstream in self._upstreams.values():
            await upstream.close()
        await self.limiter.close()
        await self._say_goodbye()
        await self.pool.close()

    def upstream(self, vendor: VendorAccess) -> Upstream:
        """The vendor's pool. A changed vendor gets a new one; the old one drains by itself."""
        upstream = self._upstreams.get(vendor)
        if upstream is None:
            upstream = Upstream(
                vendor.base_url,
                timeouts=vendor.timeouts,
                max_connections=vendor.max_connections,
                keep_alive_s=vendor.keep_alive_s,
            )
            self._upstreams[vendor] = upstream
        return upstream

    async def _show_life(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Hold a lock for as long as the listening connection lasts.

        A process that is too busy to beat still holds it, so its open streams are left to it.
        Shared: a lost connection of ours, of which PostgreSQL has not heard yet, is not waited for.
        """
        await connection.execute(
            "SELECT pg_advisory_lock_shared(%s, %s::int)", (LIFE_LOCK, self.process_id)
        )

    def _key_changed(self, payload: str) -> None:
        self.principals.forget(payload)

    def _catalog_changed(self, _payload: str) -> None:
        self._stale.set()

    def _changes_lost(self) -> None:
        self.principals.forget_all()

    def _changes_found(self) -> None:
        self.principals.forget_all()
        self._stale.set()

    async def _reload_when_stale(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                self.snapshot = await asyncio.to_thread(_load)
            except Exception:
                logger.exception("The catalog could not be read; trying again")
                self._stale.set()
                await asyncio.sleep(RELOAD_PAUSE_S)
                continue
            await self._close_unused()

    async def _close_unused(self) -> None:
        self.breakers.keep_only(self.snapshot.routes())
        used = {route.vendor for route in self.snapshot.routes()}
        for vendor in self._upstreams.keys() - used:
            if self._upstreams[vendor].open_connections == self._upstreams[vendor].idle_connections:
                await self._upstreams.pop(vendor).close()

    async def _every(self, seconds: float, work: Any) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except Exception as error:  # noqa: BLE001  # the next beat tries again
                logger.warning("%s: %s", work.__name__, type(error).__name__)

    async def _beat(self) -> None:
        """Say that this process lives; its row keeps its id, which open exchanges refer to."""
        name = f"{socket.gethostname()}:{os.getpid()}"
        troubles = Jsonb([trouble.told() for trouble in self.breakers.troubles()])
        async with self.pool.connection() as connection:
            if self._beats.process_id:
                await connection.execute(
                    "INSERT INTO billing_gatewayprocess (id, started_at, seen_at, name, troubles)"
                    " VALUES (%s, now(), now(), %s, %s)"
                    " ON CONFLICT (id) DO UPDATE"
                    " SET seen_at = now(), troubles = excluded.troubles",
                    (self._beats.process_id, name, troubles),
                )
                return
            cursor = await connection.execute(
                "INSERT INTO billing_gatewayprocess (started_at, seen_at, name)"
                " VALUES (now(), now(), %s) RETURNING id",
                (name,),
            )
            row = await cursor.fetchone()
            self._beats.process_id = row[0] if row else 0

    async def _say_goodbye(self) -> None:
        try:
            async with self.pool.connection(timeout=CONNECT_TIMEOUT_S) as connection:
                await connection.execute(
                    "UPDATE billing_gatewayprocess SET seen_at = now(), stopped_at = now()"
                    " WHERE id = %s",
                    (self._beats.process_id,),
                )
            await self.key_uses.write()
        except Exception as error:  # noqa: BLE001  # the sweeper notices a silent death too
            logger.warning("No good-bye: %s", type(error).__name__)


def _quiet_collector() -> None:
    """What is loaded by now lives as long as the process: the collector need not look at it again.

    Requests make few cycles, so it also runs more rarely. Its pauses are every stream's pauses.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _load() -> Snapshot:
    """Read the catalog, and what its holds need of vocabularies, before anybody asks.

    In a thread that may not be used again for days, so its connection is closed.
    """
    try:
        snapshot = load_snapshot()
    finally:
        connection.close()
    preload_bounds({family_of(*name).name for name in snapshot.counted_as()})
    return snapshot
