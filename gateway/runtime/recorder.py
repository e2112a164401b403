"""The gateway's end of the pipe to its scribe.

`put` gathers; what came in one turn of the event loop is written at once. Nothing here waits: if
the scribe falls behind by more than `WAITING_BYTES`, transcripts are lost and counted rather than
memory filled. They explain charges, they do not make them.
"""

import asyncio
import contextlib
import logging
import marshal
import sys

from gateway.exchanges.scribe import LENGTH
from gateway.relay.transcript import Spoken

logger = logging.getLogger(__name__)

WAITING_BYTES = 64 * 1024 * 1024
RESTART_PAUSE_S = 0.5
DRAIN_S = 10.0


class Recorder:
    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._pipe: asyncio.StreamWriter | None = None
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._is_closing = False
        self.lost = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway.exchanges.scribe", stdin=asyncio.subprocess.PIPE
        )
        self._pipe = self._process.stdin
        self._write()

    async def run(self) -> None:
        """Keep a scribe: a new one takes over where one has died."""
        while self._process is not None:
            await self._process.wait()
            self._pipe = None
            if self._is_closing:
                return
            logger.error("The scribe has died; a new one is started")
            await asyncio.sleep(RESTART_PAUSE_S)
            try:
                await self._restart()
            except OSError as error:
                logger.error("No scribe can be started: %s", error)  # noqa: TRY400

    async def _restart(self) -> None:
        if not self._is_closing:
            await self.start()

    def put(self, said: Spoken) -> None:
        """Never raises and never waits: transcripts explain an exchange, they do not stop it."""
        if self._waiting_bytes() > WAITING_BYTES:
            self.lost += 1
            logger.warning("A transcript is lost: the scribe is behind")
            return
        record = marshal.dumps(said)
        if not self._gathered and self._pipe is not None:
            asyncio.get_running_loop().call_soon(self._write)
        self._gathered += (LENGTH.pack(len(record)), record)
        self._gathered_bytes += len(record)

    async def close(self) -> None:
        """End the pipe and wait until the scribe has written what was in it."""
        self._is_closing = True
        if self._process is not None and self._is_dead:
            with contextlib.suppress(OSError):
                await self.start()
        if self._process is None or self._pipe is None:
            return
        self._write()
        with contextlib.suppress(OSError):
            self._pipe.close()
        try:
            await asyncio.wait_for(self._process.wait(), DRAIN_S)
        except TimeoutError:
            logger.error("The scribe does not end")  # noqa: TRY400  # no traceback says more
            self._process.kill()
            await self._process.wait()

    @property
    def _is_dead(self) -> bool:
        return self._process is None or self._process.returncode is not None

    def _write(self) -> None:
        if self._pipe is None or self._pipe.is_closing() or self._is_dead or not self._gathered:
            return  # kept for the next scribe
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = 0
        self._pipe.write(b"".join(gathered))

    def _waiting_bytes(self) -> int:
        if self._pipe is None or self._pipe.is_closing():
            return self._gathered_bytes
        return self._gathered_bytes + self._pipe.transport.get_write_buffer_size()
