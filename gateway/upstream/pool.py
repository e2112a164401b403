"""A bounded number of connections to one vendor, and a fair queue for them."""

import asyncio
import ssl
from collections import deque
from contextlib import suppress
from typing import Final

from gateway.upstream.errors import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    PoolExhausted,
    TotalTimeout,
)
from gateway.upstream.protocol import Connection
from gateway.upstream.request import Origin
from gateway.upstream.timeouts import Timeouts

# The default. Below the five seconds after which uvicorn and Node close an idle connection: a
# request that crosses such a close on the wire may be lost, and a POST is never sent twice.
KEEP_ALIVE_S: Final = 4.0
POOL_WAIT_S: Final = 5.0
MAX_WAITERS: Final = 10_000
CLOSE_WAIT_S: Final = 1.0


class Pool:
    """Last in, first out, so that a quiet hour lets the surplus expire.

    A slot is one connection, being opened or open. A slot or connection that becomes free goes to
    the longest waiter directly; a newcomer cannot overtake.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        timeouts: Timeouts,
        max_connections: int,
        ssl_context: ssl.SSLContext | None,
        keep_alive_s: float,
        pool_wait_s: float,
    ) -> None:
        self._origin = origin
        self._timeouts = timeouts
        self._max_connections = max_connections
        self._ssl_context = ssl_context
        self._keep_alive_s = keep_alive_s
        self._pool_wait_s = pool_wait_s
        self._slots_taken = 0
        self._members: set[Connection] = set()
        self._alive: set[Connection] = set()  # members, and those whose socket still closes
        self._idle: deque[Connection] = deque()
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._reaper: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._all_lost: asyncio.Future[None] | None = None

    @property
    def open_connections(self) -> int:
        return len(self._members)

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    def take_idle(self, now: float) -> Connection | None:
        """The most recently used connection that is still good; the rest are closed."""
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < self._keep_alive_s and connection.is_alive:
                return connection
            connection.discard()
        return None

    async def acquire(self, now: float, total_deadline: float) -> Connection:
        """Raise PoolExhausted, ConnectFailed, ConnectTimeout or TotalTimeout; nothing was sent."""
        wait_deadline = now + self._pool_wait_s
        while not self._is_closed:
            if self._slots_taken < self._max_connections:
                self._slots_taken += 1
                return await self._connect(total_deadline)
            granted = await self._wait(wait_deadline, total_deadline)
            if granted is None:
                return await self._connect(total_deadline)
            if granted.is_alive:
                return granted
            granted.discard()
        raise ConnectFailed("the client is closed")

    def release(self, connection: Connection) -> None:
        """Take back a clean connection."""
        if not self._keep_alive_s:
            connection.discard()
            return
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(connection)
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)
        if self._reaper is None:
            self._reap_at(connection.idle_since + self._keep_alive_s)

    def forget(self, connection: Connection) -> None:
        """A connection is closing: its slot is free."""
        if connection not in self._members:
            return
        self._members.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._free_slot()

    def lost(self, connection: Connection) -> None:
        """A connection's socket is gone."""
        self._alive.discard(connection)
        if not self._alive and self._all_lost is not None and not self._all_lost.done():
            self._all_lost.set_result(None)

    async def close(self) -> None:
        """Close every connection, whatever it carries, and refuse every waiter."""
        self._is_closed = True
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(ConnectFailed("the client is closed"))
        for connection in list(self._members):
            connection.fail(ConnectionLost("the client is closed"))
        if self._alive:
            self._all_lost = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._all_lost,), timeout=CLOSE_WAIT_S)

    async def _wait(self, wait_deadline: float, total_deadline: float) -> Connection | None:
        """A connection, or None for the right to open one."""
        if len(self._waiters) >= MAX_WAITERS:
            raise PoolExhausted("too many calls wait for a connection to the vendor")
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(min(wait_deadline, total_deadline)):
                return await waiter
        except TimeoutError:
            self._hand_back(waiter)
            if total_deadline <= wait_deadline:
                raise TotalTimeout(
                    "the call's time was over before a connection was free"
                ) from None
            raise PoolExhausted("no connection to the vendor became free in time") from None
        except asyncio.CancelledError:
            self._hand_back(waiter)
            raise

    def _hand_back(self, waiter: asyncio.Future[Connection | None]) -> None:
        """A waiter gives up, perhaps in the very moment in which it was served."""
        if not waiter.done() or waiter.cancelled():
            with suppress(ValueError):  # `_next_waiter` may have passed over it already
                self._waiters.remove(waiter)
        elif waiter.exception() is None:
            connection = waiter.result()
            if connection is None:
                self._free_slot()
            elif connection.is_usable:
                self.release(connection)

    async def _connect(self, total_deadline: float) -> Connection:
        """Open a connection in a slot that is already taken."""
        loop = asyncio.get_running_loop()
        connect_deadline = loop.time() + self._timeouts.connect_s
        try:
            async with asyncio.timeout_at(min(connect_deadline, total_deadline)):
                connection = await self._open_socket(loop)
        except TimeoutError:
            self._free_slot()
            if total_deadline <= connect_deadline:
                raise TotalTimeout(
                    "the call's time was over before the vendor was reached"
                ) from None
            raise ConnectTimeout("the vendor was not reached in time") from None
        except OSError as error:
            self._free_slot()
            raise ConnectFailed(f"the vendor was not reached: {type(error).__name__}") from error
        except BaseException:
            self._free_slot()
            raise
        return self._admit(connection)

    async def _open_socket(self, loop: asyncio.AbstractEventLoop) -> Connection:
        origin = self._origin
        _, connection = await loop.create_connection(
            lambda: Connection(self, self._timeouts, loop),
            origin.host,
            origin.port,
            ssl=self._ssl_context,
            server_hostname=origin.host if self._ssl_context is not None else None,
        )
        return connection

    def _admit(self, connection: Connection) -> Connection:
        if self._is_closed or not connection.is_usable:
            connection.discard()
            self._free_slot()
            who = "client" if self._is_closed else "vendor"
            raise ConnectFailed(f"the {who} closed the connection at once")
        self._members.add(connection)
        self._alive.add(connection)
        return connection

    def _free_slot(self) -> None:
        waiter = None if self._is_closed else self._next_waiter()
        if waiter is None:
            self._slots_taken -= 1
        else:
            waiter.set_result(None)

    def _next_waiter(self) -> asyncio.Future[Connection | None] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _reap_at(self, when: float) -> None:
        self._reaper = asyncio.get_running_loop().call_at(when, self._reap)

    def _reap(self) -> None:
        """Close what was idle for too long; the longest idle stand on the left."""
        self._reaper = None
        now = asyncio.get_running_loop().time()
        while self._idle:
            expires = self._idle[0].idle_since + self._keep_alive_s
            if expires > now:
                self._reap_at(expires)
                return
            self._idle[0].discard()
