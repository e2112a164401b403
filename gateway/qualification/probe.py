"""Sending a check's requests, by the client and with the headers that live traffic has."""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from billing.estimation import prompt_bound
from billing.usage import find_usage, read_usage
from gateway.qualification.answers import (
    BrokenAnswerError,
    CannotProbeError,
    JsonObject,
    Streamed,
    StreamReader,
    Whole,
    whole,
)
from gateway.qualification.bounds import MAX_ANSWER_BYTES, Bounds
from gateway.relay.attempt import PATH
from gateway.relay.json_text import encode
from gateway.runtime.snapshot import RouteTo, VendorAccess
from gateway.upstream import Timeouts, Upstream, UpstreamResponse
from gateway.upstream import errors as upstream_errors

CONNECTIONS: Final = 2
# Each request has a connection of its own: llama.cpp closes after a stream although it offers to
# keep alive, and what crosses such a close would look like a fault of the next answer.
FRESH_S: Final = 0.0
API_PREFIX: Final = "/v1"
BUSY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
REFUSES_US: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.FORBIDDEN}
)
NOT_LEARNT: Final = (
    upstream_errors.ConnectFailed,
    upstream_errors.ConnectTimeout,
    upstream_errors.PoolExhausted,
    upstream_errors.FirstByteTimeout,
    upstream_errors.TotalTimeout,
    upstream_errors.InvalidRequest,
)


class Prober:
    """Asks one vendor for one of its models, within the bounds of one run; `close` it.

    `spent_tokens` is what the vendor says it has counted, or the most that it can have.
    """

    def __init__(self, route: RouteTo, bounds: Bounds) -> None:
        self.bounds = bounds
        self.spent_tokens = 0
        self.server = ""
        """What the vendor calls itself in its `server` header."""
        self._route = route
        self._headers = route.vendor.request_headers
        self._upstream = _upstream(route.vendor, route.vendor.base_url, bounds)
        self._beside = _upstream(route.vendor, _root(route.vendor.base_url), bounds)
        self._clock: Callable[[], float] = asyncio.get_running_loop().time

    async def close(self) -> None:
        await self._upstream.close()
        await self._beside.close()

    async def ask(self, body: JsonObject) -> Whole:
        """Return the answer, which may be an error of the request's.

        Raises CannotProbeError and BrokenAnswerError, as all that ask do.
        """
        bound = self._reserve(body)
        answer = await self._whole(body)
        _check_status(answer.status)
        self._spend(bound, answer.value)
        return answer

    async def ask_badly(self, body: JsonObject) -> Whole:
        """As `ask` with a request that costs nothing, where a 5xx is an answer as well."""
        answer = await self._whole(body)
        if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            _check_status(answer.status)
        return answer

    async def stream(self, body: JsonObject) -> Streamed:
        """Read a stream to its end."""
        running = await self.begin(body)
        await running.read_until(None)
        return running.streamed

    async def begin(self, body: JsonObject) -> "Running":
        """Open a stream for a caller who may leave before its end."""
        bound = self._reserve(body)
        started_s = self._clock()
        response = await self._open(body)
        try:
            _check_status(response.status)
        except CannotProbeError:
            response.abort()
            raise
        self.spent_tokens += bound
        return Running(response, started_s, self._clock, self._refund(bound))

    async def look(self, path: str) -> Any:
        """What the same server shows at `path`, beside its API; None where that is nothing."""
        try:
            response = await self._beside.open(path, self._headers, b"", method=b"GET")
            body = await _read_all(response)
        except (upstream_errors.UpstreamError, BrokenAnswerError, CannotProbeError):
            return None
        return whole(response.status, body).value if response.status == HTTPStatus.OK else None

    async def _whole(self, body: JsonObject) -> Whole:
        response = await self._open(body)
        return whole(response.status, await _read_all(response))

    async def _open(self, body: JsonObject) -> UpstreamResponse:
        try:
            response = await self._upstream.open(PATH, self._headers, encode(body))
        except upstream_errors.UpstreamError as error:
            raise _named(error) from error
        header = dict(response.headers).get(b"server", b"")
        self.server = self.server or header.decode("latin-1")
        return response

    def _reserve(self, body: JsonObject) -> int:
        """The most that a request can cost, which must fit into what is left of the run."""
        prompt = prompt_bound(body, model=self._route.vendor_model, family=self._route.family)
        bound = prompt + int(body["max_tokens"])
        if self.spent_tokens + bound > self.bounds.tokens:
            raise CannotProbeError(f"the run's bound of {self.bounds.tokens} tokens is reached")
        return bound

    def _spend(self, bound: int, value: Any) -> None:
        usage = find_usage(value) if isinstance(value, dict) else None
        reading = read_usage(usage, has_output=True)
        self.spent_tokens += reading.usage.total_tokens if reading.is_complete else bound

    def _refund(self, bound: int) -> Callable[[Streamed], None]:
        def refund(streamed: Streamed) -> None:
            self.spent_tokens -= bound
            self._spend(bound, {"usage": streamed.usage})

        return refund


class Running:
    """A stream that is being read."""

    def __init__(
        self,
        response: UpstreamResponse,
        started_s: float,
        clock: Callable[[], float],
        at_end: Callable[[Streamed], None],
    ) -> None:
        content_type = dict(response.headers).get(b"content-type", b"").decode("latin-1")
        self.streamed = Streamed(response.status, content_type)
        self._response = response
        self._reader = StreamReader(self.streamed, started_s)
        self._clock = clock
        self._at_end = at_end
        self._size_bytes = 0

    async def read_until(self, pieces: int | None) -> bool:
        """Read on until so many pieces of the answer have come, None for all there are.

        False where the answer has ended. Raises CannotProbeError and BrokenAnswerError.
        """
        while pieces is None or self.streamed.pieces < pieces:
            data = await _read(self._response)
            if not data:
                self._reader.finish(self._clock())
                self._at_end(self.streamed)
                return False
            self._size_bytes += len(data)
            if self._size_bytes > MAX_ANSWER_BYTES:
                self.leave()
                raise BrokenAnswerError(f"the stream is longer than {MAX_ANSWER_BYTES} bytes")
            self._reader.push(data, self._clock())
        return not self._response.is_ended

    def leave(self) -> None:
        """Close the connection, as a client does that has heard enough."""
        self._response.abort()


def _upstream(vendor: VendorAccess, base_url: str, bounds: Bounds) -> Upstream:
    limits, call_s = vendor.timeouts, bounds.call_s
    return Upstream(
        base_url,
        timeouts=Timeouts(
            connect_s=min(limits.connect_s, call_s),
            first_byte_s=min(limits.first_byte_s, call_s),
            idle_s=min(limits.idle_s, call_s),
            total_s=min(limits.total_s, bounds.run_s),
        ),
        max_connections=CONNECTIONS,
        keep_alive_s=FRESH_S,
    )


def _root(base_url: str) -> str:
    """Where a server shows what it is doing: beside its API, not under it."""
    return base_url.rstrip("/").removesuffix(API_PREFIX)


async def _read(response: UpstreamResponse) -> bytes:
    try:
        return await response.read()
    except upstream_errors.UpstreamError as error:
        raise _named(error) from error


async def _read_all(response: UpstreamResponse) -> bytes:
    body = bytearray()
    while data := await _read(response):
        body += data
        if len(body) > MAX_ANSWER_BYTES:
            response.abort()
            raise BrokenAnswerError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _named(error: upstream_errors.UpstreamError) -> Exception:
    """A vendor that we did not reach, or did not wait for, has not answered wrongly."""
    return (CannotProbeError if isinstance(error, NOT_LEARNT) else BrokenAnswerError)(str(error))


def _check_status(status: int) -> None:
    """Raises CannotProbeError for what says nothing of the answer that was asked for."""
    if status in REFUSES_US:
        raise CannotProbeError(f"the vendor refuses our credential or account ({status})")
    if status in BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise CannotProbeError(f"the vendor is not able to answer now ({status})")
