"""What a caller holds of an answer: its head at once, its body as it arrives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.upstream.errors import ConnectionLost, UpstreamError

if TYPE_CHECKING:
    from gateway.upstream.protocol import Connection


class UpstreamResponse:
    """One answer, for one reader.

    Read it to `b""`, or call `abort`; an answer that is dropped half-read keeps its connection
    until `total_s`. `status` and `headers` (names in lower case, in the vendor's order, repeated
    ones kept) are final: 1xx answers are skipped.
    """

    __slots__ = (
        "_buffered_bytes",
        "_connection",
        "_error",
        "_pieces",
        "_waiter",
        "headers",
        "status",
    )

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._connection: Connection | None = connection  # None once the answer has ended
        self._pieces: list[bytes] = []
        self._buffered_bytes = 0
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_ended(self) -> bool:
        """Whether the answer has come to its end, so that its connection is no longer ours."""
        return self._connection is None

    async def read(self) -> bytes:
        """Return whatever has arrived, at least one byte; `b""` at the orderly end.

        What arrived before a failure is returned before the failure is raised. Cancelling a read
        closes the connection.
        """
        while not self._pieces and self._connection is not None:
            await self._wake_up()
        if self._pieces:
            return self._take()
        if self._error is not None:
            raise self._error
        return b""

    def abort(self) -> None:
        """Close the connection now, unless the answer has ended; drop what was not read."""
        if self._connection is not None:
            self._pieces.clear()
            self._connection.fail(ConnectionLost("aborted by us"))

    async def head(self) -> None:
        """Wait for `status` and `headers`; raise what came instead."""
        while not self.status and self._connection is not None:
            await self._wake_up()
        if not self.status and self._error is not None:
            raise self._error

    def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.headers = headers
        self._wake()

    def deliver(self, piece: bytes) -> int:
        """Return how many bytes now wait for the reader."""
        self._pieces.append(piece)
        self._buffered_bytes += len(piece)
        self._wake()
        return self._buffered_bytes

    def end(self, error: UpstreamError | None) -> None:
        self._error = error
        self._connection = None
        self._wake()

    def _take(self) -> bytes:
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._buffered_bytes = 0
        if self._connection is not None:
            self._connection.resume()
        return body

    async def _wake_up(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("an answer has one reader")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
