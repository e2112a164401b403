"""One gateway process's runtime on real stores, in a loop of its own beside the tests."""

import asyncio
import gc
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings as django_settings
from django.db import connection

from billing.ids import new_exchange_id
from billing.ledger import Hold, Settlement
from billing.models import Account, Exchange, GatewayProcess
from billing.usage import Usage
from gateway.models import Model, Route, Vendor
from gateway.runtime import process
from gateway.runtime.process import Runtime, database_url
from keys.services import revoke_key
from tests.gateway.relay.driver import a_vendor
from tests.gateway.runtime.test_breakers import a_route, fail
from tests.proxy import Proxy
from tests.stack import until

PATIENCE_S = 60.0


class Running:
    """A runtime whose loop runs in a thread; `do` runs work in it."""

    def __init__(self) -> None:
        self.runtime: Runtime
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

        async def make() -> None:
            self.runtime = Runtime()
            await self.runtime.start()

        self.do(make)

    def do(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work(*arguments), self._loop).result(PATIENCE_S)

    def stop(self) -> None:
        self.do(self.runtime.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


@pytest.fixture(scope="module")
def around(django_db_setup, django_db_blocker) -> Iterator[tuple[Running, Proxy]]:
    """A runtime that reaches PostgreSQL through a proxy, and the proxy."""
    parts = psycopg.conninfo.conninfo_to_dict(database_url())
    patch, thresholds = pytest.MonkeyPatch(), gc.get_threshold()
    patch.setenv("DATABASE_URL", database_url())  # the scribe's
    with Proxy(str(parts["host"]), int(parts["port"])) as proxy, django_db_blocker.unblock():
        through = psycopg.conninfo.make_conninfo(database_url(), host="127.0.0.1", port=proxy.port)
        patch.setattr(django_settings, "DATABASE_URL", through)
        patch.setattr(process, "HEARTBEAT_EVERY_S", 0.05)
        running = Running()
        running.start()
        yield running, proxy
        running.stop()
        assert not running.runtime.listener.is_listening
        assert row_of(running).stopped_at is not None
        patch.undo()
        gc.unfreeze()  # a gateway's way with the collector is not the tests'
        gc.set_threshold(*thresholds)


@pytest.fixture
def running(around, committed) -> Running:
    return around[0]


@pytest.fixture
def proxy(around) -> Iterator[Proxy]:
    running, proxy = around
    yield proxy
    proxy.mend()
    until(lambda: running.runtime.listener.is_listening)


def row_of(running: Running) -> GatewayProcess:
    return GatewayProcess.objects.get(pk=running.runtime.process_id)


def a_hold(tenant, running: Running, nanos: int = 1_000) -> Hold:
    from django.utils import timezone

    return Hold(
        exchange_id=new_exchange_id(),
        tenant_id=tenant.pk,
        key_id=1,
        process_id=running.runtime.process_id,
        price_id=None,
        hold_nanos=nanos,
        currency="USD",
        model="m",
        created_at=timezone.now(),
        is_stream=True,
        is_test=False,
    )


async def submitted(writer, item) -> Any:
    return await writer.submit(item)


def test_a_process_says_that_it_lives(running: Running) -> None:
    row = row_of(running)
    assert row.name.startswith(f"{socket.gethostname()}:")
    assert row.stopped_at is None
    until(lambda: row_of(running).seen_at > row.seen_at)


def test_a_process_says_which_vendors_it_takes_no_calls_to(running: Running) -> None:
    breakers = running.runtime.breakers
    route = a_route("m")

    def told() -> Any:
        if not breakers.is_troubled:  # a reload of the catalog forgets a route that it has not
            fail(breakers, route)
        return row_of(running).troubles

    said = {"vendor_id": route.vendor.id, "model": "m", "state": "open"}
    (trouble,) = until(told)
    assert {**trouble, **said} == trouble
    breakers.keep_only([])
    until(lambda: row_of(running).troubles == [])


def test_a_row_that_got_lost_is_written_again_under_its_id(running: Running) -> None:
    """Open exchanges refer to it: under another id they would look abandoned."""
    before = row_of(running)
    before.delete()
    until(GatewayProcess.objects.filter(pk=running.runtime.process_id).exists)


def test_a_change_of_the_catalog_is_in_memory_without_being_asked_for(running: Running) -> None:
    runtime = running.runtime
    vendor = Vendor.objects.create(name="process-north", base_url="http://127.0.0.1:1/v1")
    model = Model.objects.create(name="process-model")
    Route.objects.create(model=model, vendor=vendor, vendor_model="x")
    until(lambda: "process-model" in runtime.snapshot.models)
    until(lambda: runtime.snapshot.models["process-model"].routes)
    Model.objects.filter(pk=model.pk).update(is_active=False)
    until(lambda: "process-model" not in runtime.snapshot.models)


def test_a_revoked_key_is_forgotten_by_word_of_postgresql(running: Running, world) -> None:
    created = world.key(world.tenant())
    authenticate = running.runtime.principals.authenticate
    assert running.do(authenticate, created.secret) is not None
    revoke_key(created.key.tenant, created.key.public_id, actor="tests")
    until(lambda: running.do(authenticate, created.secret) is None, seconds=1.0)


def test_equal_vendors_share_a_pool_and_a_changed_one_gets_its_own(running: Running) -> None:
    async def pools() -> list[Any]:
        upstream = running.runtime.upstream
        same = a_vendor("http://127.0.0.1:1/v1"), a_vendor("http://127.0.0.1:1/v1")
        changed = a_vendor("http://127.0.0.1:1/v1", max_connections=3)
        return [upstream(vendor) for vendor in (*same, changed)]

    first, second, other = running.do(pools)
    assert first is second
    assert other is not first

    async def kept() -> int:
        await running.runtime._close_unused()
        return sum(pool in running.runtime._upstreams.values() for pool in (first, other))

    assert running.do(kept) == 0


def test_a_host_that_is_gone_without_a_word_is_noticed(running: Running) -> None:
    async def options() -> tuple[int, int]:
        connection = await process.connect()
        async with connection:
            with socket.socket(fileno=socket.dup(connection.fileno())) as same:
                return (
                    same.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                    same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                )

    assert running.do(options) == (10_000, 5)


def test_what_the_operator_says_of_the_connection_stands(running: Running, settings) -> None:
    settings.DATABASE_URL = f"{settings.DATABASE_URL} tcp_user_timeout=777 keepalives=0"
    said = psycopg.conninfo.conninfo_to_dict(database_url())
    assert (said["tcp_user_timeout"], said["keepalives"]) == ("777", "0")
    assert said["dbname"] == connection.settings_dict["NAME"]


def test_without_postgresql_a_question_is_refused_soon_and_answered_soon_after(
    running: Running, proxy: Proxy, world
) -> None:
    created = world.key(world.tenant())
    authenticate = running.runtime.principals.authenticate
    proxy.cut()
    until(lambda: not running.runtime.listener.is_listening)
    for _ in range(2):
        with pytest.raises((psycopg.OperationalError, OSError)):
            running.do(authenticate, created.secret)
    proxy.mend()

    def is_answered() -> bool:
        try:
            return running.do(authenticate, created.secret) is not None
        except psycopg.OperationalError:
            return False

    until(is_answered, seconds=2.0)


def test_connections_that_broke_unnoticed_are_not_handed_out(
    running: Running, proxy: Proxy, world, monkeypatch
) -> None:
    monkeypatch.setattr(running.runtime.pool, "timeout", PATIENCE_S)
    created = world.key(world.tenant())
    authenticate = running.runtime.principals.authenticate
    running.do(authenticate, created.secret)
    proxy.drop()
    other = world.key(world.tenant())
    assert running.do(authenticate, other.secret) is not None


def test_a_lost_connection_of_ours_does_not_keep_us_from_showing_life(running: Running) -> None:
    async def twice() -> None:
        async with (
            asyncio.timeout(5),
            await process.connect() as one,
            await process.connect() as two,
        ):
            await running.runtime._show_life(one)
            await running.runtime._show_life(two)

    running.do(twice)


def test_what_is_queued_when_a_process_stops_is_written(running: Running, world) -> None:
    from django.utils import timezone

    tenant = world.tenant(balance="1")
    second = Running()
    second.start()
    hold = a_hold(tenant, second)
    second.do(submitted, second.runtime.holds, hold.item())
    settlement = Settlement(
        exchange_id=hold.exchange_id,
        tenant_id=tenant.pk,
        currency="USD",
        cost_nanos=400,
        usage=Usage(input_tokens=1),
        usage_source="vendor",
        outcome="answered",
        settled_at=timezone.now(),
    )

    async def leave() -> None:
        second.runtime.background.start(
            submitted(second.runtime.settlements, settlement.item()), "settlement"
        )

    second.do(leave)
    second.stop()

    assert Exchange.objects.get(id=hold.exchange_id).state == "settled"
    wallet = Account.objects.get(tenant=tenant, kind="wallet")
    assert (wallet.posted_nanos, wallet.held_nanos) == (999_999_600, 0)
    assert row_of(second).stopped_at is not None
