"""One LISTEN connection a process: what PostgreSQL says has changed.

While the connection is away nothing that it guards may be trusted: `is_listening` is false and
`lost` is called at once, so that the caches forget and ask anew each time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import psycopg
from psycopg import sql

logger = logging.getLogger(__name__)

RECONNECT_PAUSE_S = 0.5
PROBE_EVERY_S = 5.0  # a dead peer is noticed by a query that gets no answer
PROBE_TIMEOUT_S = 2.0

Handler = Callable[[str], None]


class Listener:
    def __init__(
        self,
        connect: Callable[[], Any],
        handlers: Mapping[str, Handler],
        *,
        lost: Callable[[], None],
        found: Callable[[], None],
        greet: Callable[[Any], Awaitable[None]] | None = None,
    ) -> None:
        self._connect = connect
        self._handlers = handlers
        self._lost = lost
        self._found = found
        self._greet = greet
        self.is_listening = False

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError, TimeoutError) as error:
                logger.warning("No word of changes from PostgreSQL: %s", type(error).__name__)
            except Exception:
                logger.exception("A word from PostgreSQL was not understood; listening anew")
            await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _listen(self) -> None:
        connection = await self._connect()
        try:
            for channel in self._handlers:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            if self._greet is not None:
                await self._greet(connection)
            self.is_listening = True
            self._found()
            while True:
                async for notify in connection.notifies(timeout=PROBE_EVERY_S):
                    self._handlers[notify.channel](notify.payload)
                await self._probe(connection)
        finally:
            self._lose()
            await connection.close()

    async def _probe(self, connection: Any) -> None:
        probe = asyncio.get_running_loop().create_task(connection.execute("SELECT 1"))
        try:
            done, _ = await asyncio.wait({probe}, timeout=PROBE_TIMEOUT_S)
            if not done:
                self._lose()  # at once: to give a query up takes psycopg seconds
                probe.cancel()
                await asyncio.wait({probe})
                raise TimeoutError
            await probe
        finally:
            probe.cancel()

    def _lose(self) -> None:
        if self.is_listening:
            logger.warning("The connection that tells of changes is lost; caches are off")
        self.is_listening = False
        self._lost()
