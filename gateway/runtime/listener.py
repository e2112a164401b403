"""One LISTEN connection a process: what PostgreSQL says has changed.

While the connection is away nothing that it guards may be trusted: `is_listening` is false and
`lost` is called at once, so that the caches forget and ask anew each time.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
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
    ) -> None:
        self._connect = connect
        self._handlers = handlers
        self._lost = lost
        self._found = found
        self.is_listening = False

    async def run(self) -> None:
        while True:
            with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                await self._listen()
            if self.is_listening:
                logger.warning("The connection that tells of changes is lost; caches are off")
            self.is_listening = False
            self._lost()
            await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _listen(self) -> None:
        async with await self._connect() as connection:
            for channel in self._handlers:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            self.is_listening = True
            self._found()
            while True:
                async for notify in connection.notifies(timeout=PROBE_EVERY_S):
                    self._handlers[notify.channel](notify.payload)
                await asyncio.wait_for(connection.execute("SELECT 1"), PROBE_TIMEOUT_S)
