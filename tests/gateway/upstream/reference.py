"""aiohttp behind the interface of our client: the same suite must pass on both."""

import asyncio
import io
import socket
import ssl
from collections.abc import Sequence

import aiohttp
from yarl import URL

from gateway.upstream import Timeouts
from gateway.upstream.errors import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    InvalidRequest,
    ProtocolError,
    TotalTimeout,
    UpstreamError,
)


class ReferenceResponse:
    def __init__(self, response: aiohttp.ClientResponse, timeouts: Timeouts, deadlines) -> None:
        self.status = response.status
        self.headers = [(name.lower(), value) for name, value in response.raw_headers]
        self._response = response
        self._timeouts = timeouts
        self._first_byte_deadline, self._total_deadline = deadlines
        self._body_started = False

    async def read(self) -> bytes:
        loop = asyncio.get_running_loop()
        idle_deadline = loop.time() + self._timeouts.idle_s
        quiet = idle_deadline if self._body_started else self._first_byte_deadline
        try:
            async with asyncio.timeout_at(min(quiet, self._total_deadline)):
                piece = await self._response.content.readany()
        except TimeoutError:
            self.abort()
            kind = IdleTimeout if self._body_started else FirstByteTimeout
            kind = TotalTimeout if self._total_deadline <= quiet else kind
            raise kind("", request_sent=True, response_started=True) from None
        except (aiohttp.ClientPayloadError, aiohttp.ClientOSError) as error:
            self.abort()
            raise ConnectionLost("", request_sent=True, response_started=True) from error
        except asyncio.CancelledError:
            self.abort()
            raise
        self._body_started = True
        return piece

    def abort(self) -> None:
        self._response.close()


class ReferenceUpstream:
    def __init__(
        self,
        base_url: str,
        *,
        timeouts: Timeouts,
        max_connections: int,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._base_url = base_url
        self._timeouts = timeouts
        connector = aiohttp.TCPConnector(
            limit=max_connections,
            ssl=ssl_context or True,
            keepalive_timeout=4.0,
            family=socket.AF_INET,
        )
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )

    async def open(
        self,
        path: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        method: bytes = b"POST",
    ) -> ReferenceResponse:
        now = asyncio.get_running_loop().time()
        deadlines = (now + self._timeouts.first_byte_s, now + self._timeouts.total_s)
        try:
            async with asyncio.timeout_at(min(deadlines)):
                response = await self._session.request(
                    method.decode(),
                    URL(self._base_url + path, encoded=True),
                    headers=[
                        ("content-length", str(len(body))),
                        *((name.decode(), value.decode("latin-1")) for name, value in headers),
                    ],
                    data=io.BytesIO(body),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(
                        total=None, sock_connect=self._timeouts.connect_s
                    ),
                )
        except Exception as error:
            raise self._translated(error, deadlines) from error
        return ReferenceResponse(response, self._timeouts, deadlines)

    async def close(self) -> None:
        await self._session.close()

    def _translated(self, error: Exception, deadlines: tuple[float, float]) -> UpstreamError:
        first_byte, total = deadlines
        late = FirstByteTimeout if first_byte < total else TotalTimeout
        kinds: list[tuple[type[Exception], type[UpstreamError], bool]] = [
            (aiohttp.ConnectionTimeoutError, ConnectTimeout, False),
            (TimeoutError, late, True),
            (aiohttp.ClientConnectorError, ConnectFailed, False),
            (aiohttp.ClientConnectorCertificateError, ConnectFailed, False),
            (aiohttp.ClientConnectionError, ConnectionLost, True),
            (aiohttp.ClientResponseError, ProtocolError, True),
            (ValueError, InvalidRequest, False),
        ]
        for theirs, ours, request_sent in kinds:
            if isinstance(error, theirs):
                return ours("", request_sent=request_sent)
        raise error
