"""Group commit: many requests, one transaction.

A writer owns one connection and one queue. It takes what has arrived while the last batch was
being committed and sends it as one statement: under load batches grow by themselves, alone an
item waits for nothing. There is no timer.

- Durable when answered: the statement is its own transaction, `synchronous_commit` is on.
- One answer an item. An item that breaks a constraint fails alone: the batch is sent again one
  by one.
- A lost connection is opened again and the batch is sent again; the statements are idempotent, so
  nothing is applied twice (see migrations/sql/0005_ledger.sql).
- Bounded: `QUEUE_ITEMS` wait at most; more is refused at once with QueueFull. An answer that does
  not come in time is not waited for: nothing is known of its items then.
- Fair: a batch takes from the tenants in turn, so that one with a long queue delays itself only.
  A tenant whose wallet somebody keeps locked is set aside, to a connection of its own: neighbours
  wait for it once, for the server's `lock_timeout`.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from billing.errors import LedgerUnavailable, QueueFull
from billing.patience import answering_within
from billing.storable import encode_item

logger = logging.getLogger(__name__)

BATCH_ITEMS = 64
QUEUE_ITEMS = 4_096
HOLD_PAUSES_S = (0.0, 0.05)  # a new request is better refused at once than kept waiting
SETTLE_PAUSES_S = (0.0, 0.05, 0.2, 0.5, 1.0)
HOLD_ANSWER_S = 3.0
SETTLE_ANSWER_S = 15.0  # longer than the server's own statement_timeout
POLL_S = 0.05
ASIDE_S = 3.0  # how long a tenant that was set aside waits for its lock
DRAIN_SECONDS = 8.0

HOLD = "SELECT * FROM farthing_hold(%s::jsonb)"
EXTEND = "SELECT * FROM farthing_extend(%s::jsonb)"
SETTLE = "SELECT * FROM farthing_settle(%s::jsonb)"
ESTIMATE = "SELECT * FROM farthing_estimate(%s::jsonb)"
REFUSE = "SELECT * FROM farthing_refuse(%s::jsonb)"
_FREE = """
SELECT tenant_id FROM billing_account WHERE kind = 'wallet' AND tenant_id = ANY (%s)
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]
Item = dict[str, Any]
Row = tuple[Any, ...]


@dataclass(slots=True)
class _Waiting:
    """An item as JSON, without its first brace: its number in the batch goes there."""

    tenant_id: int
    rest: bytes
    answer: asyncio.Future[Row]
    until_s: float = 0.0  # of one that was set aside


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

    def take_of_one(self, most: int) -> list[_Waiting]:
        """Of the tenant whose turn it is."""
        tenant = self.turns.popleft()
        queue = self.by_tenant[tenant]
        taken = [queue.popleft() for _ in range(min(most, len(queue)))]
        if queue:
            self.turns.append(tenant)
        else:
            del self.by_tenant[tenant]
        self.count -= len(taken)
        return taken


Write = Callable[[list[_Waiting]], Awaitable[None]]


class _Line:
    """One connection, made when it is needed, and one statement through it."""

    def __init__(self, connect: Connect, answer_s: float) -> None:
        self._connect = connect
        self._answer_s = answer_s
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def ask(self, statement: str, value: Any) -> list[Row]:
        """Raises psycopg errors, OSError, and TimeoutError where there is no answer in time."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        if self._connection is None or self._connection.closed:
            async with asyncio.timeout(self._answer_s):
                self._connection = await self._connect()
        connection = self._connection
        try:
            with answering_within(connection, self._answer_s):
                cursor = await connection.execute(statement, (value,), prepare=True)
                return await cursor.fetchall()
        except psycopg.OperationalError as error:
            if loop.time() - begun_s >= self._answer_s and not _is_timeout(error):
                raise TimeoutError from error
            raise

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class GroupCommit:
    """A bounded queue in front of one statement that takes a JSON array of items.

    Every item needs a `tenant_id`; the statement answers rows that start with the item's number.
    """

    def __init__(
        self,
        name: str,
        statement: str,
        connect: Connect,
        pauses_s: tuple[float, ...],
        answer_s: float = SETTLE_ANSWER_S,
    ) -> None:
        self.name = name
        self._statement = statement
        self._pauses_s = pauses_s
        self._line = _Line(connect, answer_s)
        self._queues = _Queues()
        self._arrived = asyncio.Event()
        self._aside_line = _Line(connect, answer_s)
        self._aside = _Queues()
        self._aside_arrived = asyncio.Event()
        self._aside_tenants: set[int] = set()
        self._is_closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self.batches = 0
        self.items = 0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._run(), name=f"writer {self.name}"),
            loop.create_task(self._run_aside(), name=f"writer {self.name}, aside"),
        ]

    @property
    def waiting(self) -> int:
        return self._queues.count + self._aside.count

    def submit(self, item: Item) -> asyncio.Future[Row]:
        """The statement's row for this item, once it is durable.

        Raises QueueFull, or TypeError for an item that is no JSON, at once; the future raises
        LedgerUnavailable, or the database's own error for this item alone.
        """
        if self.waiting >= QUEUE_ITEMS or self._is_closing:
            raise QueueFull(f"The queue of {self.name} is full.")
        answer: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(item["tenant_id"], encode_item(item)[1:], answer)
        if waiting.tenant_id in self._aside_tenants:
            self._set_aside([waiting])
        else:
            self._queues.put(waiting)
            self._arrived.set()
        return answer

    async def close(self) -> None:
        """Write what is queued, within `DRAIN_SECONDS`; then refuse the rest."""
        self._is_closing = True
        self._arrived.set()
        self._aside_arrived.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DRAIN_SECONDS)
        for task in self._tasks:
            task.cancel()
        for waiting in (*self._queues.take(QUEUE_ITEMS), *self._aside.take(QUEUE_ITEMS)):
            _fail([waiting], LedgerUnavailable("Farthing is stopping."))
        await self._line.close()
        await self._aside_line.close()

    async def _run(self) -> None:
        while not (self._is_closing and self._queues.count == 0):
            if self._queues.count == 0:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            batch = self._queues.take(BATCH_ITEMS)
            async with self._telling(batch):
                await self._write(batch)

    async def _run_aside(self) -> None:
        """Serve tenants whose wallets were locked, one at a time, each until `ASIDE_S` is over."""
        while not (self._is_closing and self._aside.count == 0 and self._tasks[0].done()):
            if self._aside.count == 0:
                self._aside_arrived.clear()
                if self._is_closing:
                    await asyncio.wait({self._tasks[0]}, timeout=POLL_S)  # it may still set aside
                else:
                    await self._aside_arrived.wait()
                continue
            batch = self._aside.take_of_one(BATCH_ITEMS)
            async with self._telling(batch):
                await self._write_aside(batch)

    @contextlib.asynccontextmanager
    async def _telling(self, batch: list[_Waiting]) -> AsyncIterator[None]:
        """Whatever happens to a batch, whoever waits for it is told, and the writer goes on."""
        try:
            yield
        except asyncio.CancelledError:
            _fail(batch, LedgerUnavailable("Farthing is stopping."))
            raise
        except Exception as error:
            logger.exception("The writer of %s failed a batch", self.name)
            _fail(batch, error)

    async def _write(self, batch: list[_Waiting]) -> None:
        try:
            rows = await self._send(self._line, batch)
        except LedgerUnavailable as error:
            _fail(batch, error)
        except psycopg.errors.LockNotAvailable:
            await self._write_what_is_free(batch)
        except psycopg.Error as error:
            await self._one_by_one(batch, error, self._write)
        else:
            self._answer(batch, rows)

    async def _write_what_is_free(self, batch: list[_Waiting]) -> None:
        """Set aside whose wallet is locked now; if it is nobody's, the whole batch."""
        tenants = list({waiting.tenant_id for waiting in batch})
        try:
            free = {row[0] for row in await self._line.ask(_FREE, tenants)}
        except (psycopg.Error, OSError):
            free = set()
        if len(free) == len(tenants):
            free = set()
        self._set_aside([waiting for waiting in batch if waiting.tenant_id not in free])
        if rest := [waiting for waiting in batch if waiting.tenant_id in free]:
            await self._write(rest)

    def _set_aside(self, batch: list[_Waiting]) -> None:
        until_s = asyncio.get_running_loop().time() + ASIDE_S
        for waiting in batch:
            waiting.until_s = waiting.until_s or until_s
            self._aside_tenants.add(waiting.tenant_id)
            self._aside.put(waiting)
        self._aside_arrived.set()

    async def _write_aside(self, batch: list[_Waiting]) -> None:
        tenant = batch[0].tenant_id
        try:
            rows = await self._send(self._aside_line, batch)
        except LedgerUnavailable as error:
            _fail(batch, error)
        except psycopg.errors.LockNotAvailable as error:
            now_s = asyncio.get_running_loop().time()
            _fail([waiting for waiting in batch if waiting.until_s <= now_s], error)
            self._set_aside([waiting for waiting in batch if waiting.until_s > now_s])
            return
        except psycopg.Error as error:
            await self._one_by_one(batch, error, self._write_aside)
        else:
            self._answer(batch, rows)
        if tenant not in self._aside.by_tenant:
            self._aside_tenants.discard(tenant)

    async def _one_by_one(self, batch: list[_Waiting], error: psycopg.Error, write: Write) -> None:
        if len(batch) == 1:
            _fail(batch, error)
            return
        logger.warning("%s: a batch of %d failed, sent one by one", self.name, len(batch))
        for waiting in batch:
            await write([waiting])

    def _answer(self, batch: list[_Waiting], rows: list[Row]) -> None:
        self.batches += 1
        self.items += len(batch)
        for row in rows:
            answer = batch[row[0]].answer
            if not answer.done():
                answer.set_result(row)

    async def _send(self, line: _Line, batch: list[_Waiting]) -> list[Row]:
        items = [b'{"n":%d,%b' % (number, waiting.rest) for number, waiting in enumerate(batch)]
        payload = (b"[%b]" % b",".join(items)).decode()
        for pause_s in self._pauses_s:
            await asyncio.sleep(pause_s)
            try:
                return await line.ask(self._statement, payload)
            except (psycopg.OperationalError, OSError) as error:
                if _is_timeout(error):
                    raise
                logger.warning(
                    "%s: no answer from PostgreSQL (%s)", self.name, type(error).__name__
                )
                await line.close()
                if isinstance(error, TimeoutError):
                    break  # it is there and silent: to ask again is to wait as long again
        raise LedgerUnavailable("PostgreSQL does not answer.")


def _is_timeout(error: Exception) -> bool:
    """A lock or a statement that took too long: the connection is sound, the item has failed."""
    return isinstance(error, psycopg.errors.QueryCanceled | psycopg.errors.LockNotAvailable)


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)
