"""Group commit: many requests, one transaction.

A writer owns one connection and one queue. It takes what has arrived while the last batch was
being committed and sends it as one statement: under load batches grow by themselves, alone an
item waits for nothing. There is no timer.

- Durable when answered: the statement is its own transaction, `synchronous_commit` is on.
- One answer an item. An item that breaks a constraint fails alone: the batch is sent again one
  by one.
- A lost connection is opened again and the batch is sent again; the statements are idempotent, so
  nothing is applied twice (see migrations/sql/0005_ledger.sql).
- Bounded: `QUEUE_ITEMS` wait at most; more is refused at once with QueueFull.
- Fair: a batch takes from the tenants in turn, so that one with a long queue delays itself only.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import psycopg

from billing.errors import LedgerUnavailable, QueueFull

logger = logging.getLogger(__name__)

BATCH_ITEMS = 64
QUEUE_ITEMS = 4_096
HOLD_PAUSES_S = (0.0, 0.05)  # a new request is better refused at once than kept waiting
SETTLE_PAUSES_S = (0.0, 0.05, 0.2, 0.5, 1.0)
DRAIN_SECONDS = 8.0

HOLD = "SELECT * FROM farthing_hold(%s::jsonb)"
EXTEND = "SELECT * FROM farthing_extend(%s::jsonb)"
SETTLE = "SELECT * FROM farthing_settle(%s::jsonb)"
ESTIMATE = "SELECT * FROM farthing_estimate(%s::jsonb)"
REFUSE = "SELECT * FROM farthing_refuse(%s::jsonb)"

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]
Item = dict[str, Any]
Row = tuple[Any, ...]


@dataclass(slots=True)
class _Waiting:
    """An item as JSON, without its first brace: its number in the batch goes there."""

    tenant_id: int
    rest: bytes
    answer: asyncio.Future[Row]


@dataclass(slots=True)
class _Queues:
    """One queue a tenant, served in turn."""

    by_tenant: dict[int, deque[_Waiting]] = field(default_factory=dict)
    turns: deque[int] = field(default_factory=deque)
    count: int = 0

    def put(self, waiting: _Waiting) -> None:
        tenant = waiting.tenant_id
        queue = self.by_tenant.get(tenant)
        if queue is None:
            queue = self.by_tenant[tenant] = deque()
            self.turns.append(tenant)
        queue.append(waiting)
        self.count += 1

    def take(self, most: int) -> list[_Waiting]:
        taken: list[_Waiting] = []
        while self.turns and len(taken) < most:
            tenant = self.turns.popleft()
            queue = self.by_tenant[tenant]
            taken.append(queue.popleft())
            if queue:
                self.turns.append(tenant)
            else:
                del self.by_tenant[tenant]
        self.count -= len(taken)
        return taken


class GroupCommit:
    """A bounded queue in front of one statement that takes a JSON array of items.

    Every item needs a `tenant_id`; the statement answers rows that start with the item's number.
    """

    def __init__(
        self, name: str, statement: str, connect: Connect, pauses_s: tuple[float, ...]
    ) -> None:
        self.name = name
        self._statement = statement
        self._connect = connect
        self._pauses_s = pauses_s
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._queues = _Queues()
        self._arrived = asyncio.Event()
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None
        self.batches = 0
        self.items = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"writer {self.name}")

    @property
    def waiting(self) -> int:
        return self._queues.count

    def submit(self, item: Item) -> asyncio.Future[Row]:
        """The statement's row for this item, once it is durable.

        Raises QueueFull, or TypeError for an item that is no JSON, at once; the future raises
        LedgerUnavailable, or the database's own error for this item alone.
        """
        if self._queues.count >= QUEUE_ITEMS or self._is_closing:
            raise QueueFull(f"The queue of {self.name} is full.")
        answer: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self._queues.put(_Waiting(item["tenant_id"], orjson.dumps(item)[1:], answer))
        self._arrived.set()
        return answer

    async def close(self) -> None:
        """Write what is queued, within `DRAIN_SECONDS`; then refuse the rest."""
        self._is_closing = True
        self._arrived.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=DRAIN_SECONDS)
            self._task.cancel()
        for waiting in self._queues.take(QUEUE_ITEMS):
            _fail([waiting], LedgerUnavailable("Farthing is stopping."))
        await self._disconnect()

    async def _run(self) -> None:
        while not (self._is_closing and self._queues.count == 0):
            if self._queues.count == 0:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            batch = self._queues.take(BATCH_ITEMS)
            try:
                await self._write(batch)
            except asyncio.CancelledError:
                _fail(batch, LedgerUnavailable("Farthing is stopping."))
                raise
            except Exception as error:
                logger.exception("The writer of %s failed a batch", self.name)
                _fail(batch, error)

    async def _write(self, batch: list[_Waiting]) -> None:
        try:
            rows = await self._send(batch)
        except LedgerUnavailable as error:
            _fail(batch, error)
        except psycopg.Error as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            logger.warning("%s: a batch of %d failed, sent one by one", self.name, len(batch))
            for waiting in batch:
                await self._write([waiting])
        else:
            self.batches += 1
            self.items += len(batch)
            for row in rows:
                answer = batch[row[0]].answer
                if not answer.done():
                    answer.set_result(row)

    async def _send(self, batch: list[_Waiting]) -> list[Row]:
        items = [b'{"n":%d,%b' % (number, waiting.rest) for number, waiting in enumerate(batch)]
        payload = b"[%b]" % b",".join(items)
        for pause_s in self._pauses_s:
            await asyncio.sleep(pause_s)
            try:
                connection = await self._connected()
                cursor = await connection.execute(
                    self._statement, (payload.decode(),), prepare=True
                )
                return await cursor.fetchall()
            except (psycopg.OperationalError, OSError) as error:
                if _is_timeout(error):
                    raise
                logger.warning(
                    "%s: no answer from PostgreSQL (%s)", self.name, type(error).__name__
                )
                await self._disconnect()
        raise LedgerUnavailable("PostgreSQL does not answer.")

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._connect()
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _is_timeout(error: Exception) -> bool:
    """A lock or a statement that took too long: the connection is sound, the item has failed."""
    return isinstance(error, psycopg.errors.QueryCanceled | psycopg.errors.LockNotAvailable)


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)
