"""The upstream client: HTTP/1.1 over asyncio and llhttp, as little as a relay needs.

Own code because a call must cost tens of microseconds and general clients take hundreds. It
follows no redirect, keeps no cookie, decodes no content coding, and never sends a request twice
to who may have got a byte of it.
"""

import asyncio
import ssl
from collections.abc import Sequence

from gateway.upstream.errors import ConnectionLost
from gateway.upstream.pool import KEEP_ALIVE_S, POOL_WAIT_S, Pool
from gateway.upstream.protocol import Connection
from gateway.upstream.request import Origin, encode_head
from gateway.upstream.response import UpstreamResponse
from gateway.upstream.timeouts import Timeouts


class Upstream:
    """One vendor. Belongs to the event loop that first opens a call; not thread-safe."""

    def __init__(
        self,
        base_url: str,
        *,
        timeouts: Timeouts,
        max_connections: int,
        ssl_context: ssl.SSLContext | None = None,
        keep_alive_s: float = KEEP_ALIVE_S,
        pool_wait_s: float = POOL_WAIT_S,
    ) -> None:
        """Raise ValueError for a base URL that is not `http(s)://host[:port][/prefix]`.

        `ssl_context` replaces the default of an https vendor (the system's authorities, name
        checked, TLS 1.2 or later).
        """
        if max_connections < 1:
            raise ValueError("a pool needs room for one connection")
        self._origin = Origin.from_base_url(base_url)
        self._timeouts = timeouts
        self._pool = Pool(
            self._origin,
            timeouts=timeouts,
            max_connections=max_connections,
            ssl_context=(ssl_context or default_ssl_context()) if self._origin.is_tls else None,
            keep_alive_s=keep_alive_s,
            pool_wait_s=pool_wait_s,
        )

    @property
    def open_connections(self) -> int:
        return self._pool.open_connections

    @property
    def idle_connections(self) -> int:
        return self._pool.idle_connections

    async def open(
        self,
        path: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        method: bytes = b"POST",
    ) -> UpstreamResponse:
        """Send one request and return when the head of its answer is there.

        `path` starts with `/` and goes after the base URL's own path. `host` and `content-length`
        are added; headers that frame the message are refused. Raises the errors of
        `gateway.upstream.errors`; cancelling closes the connection.
        """
        head = encode_head(self._origin, method, path, headers, len(body))
        now = asyncio.get_running_loop().time()
        total_deadline = now + self._timeouts.total_s
        connection = self._pool.take_idle(now) or await self._pool.acquire(now, total_deadline)
        try:
            return await _call(connection, head, body, total_deadline)
        except ConnectionLost as lost:
            if lost.request_sent or not connection.is_reused:
                raise
        # The vendor closed an idle connection while this request was on its way, and has got no
        # byte of it: that is no second sending. Without proof it would be one, and one call is
        # one charge: then the error stands.
        now = asyncio.get_running_loop().time()
        return await _call(
            await self._pool.acquire(now, total_deadline), head, body, total_deadline
        )

    async def close(self) -> None:
        """Close every connection; calls in flight end with ConnectionLost."""
        await self._pool.close()


async def _call(
    connection: Connection, head: bytes, body: bytes, total_deadline: float
) -> UpstreamResponse:
    response = connection.send(head, body, total_deadline)
    await response.head()
    return response


def default_ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
