"""The driver of one exchange: steps 6 to 9 of its life, around the sans-IO core.

It owns sockets and time; what the bytes mean is `AnswerRelay`'s. Everything runs in the one task
that the server made for the request: nobody but a stopping server cancels it, and then the
settlement goes on in the background. A client that leaves is told of by a callback, never by a
cancellation in the middle of money.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings

from gateway import errors
from gateway.errors import ApiError
from gateway.relay.accepted import Accepted
from gateway.relay.answer import AnswerRelay
from gateway.relay.attempt import PATH, Attempt
from gateway.relay.capture import Capture
from gateway.relay.cover import Cover
from gateway.relay.failures import Fault
from gateway.relay.headers import JSON_HEADERS, STREAM_HEADERS, Headers, encoded
from gateway.relay.idempotency import ANSWER_BYTES_MAX, may_be_repeated
from gateway.relay.request import vendor_body
from gateway.relay.settling import Settling
from gateway.runtime.breakers import Permit
from gateway.runtime.process import Runtime
from gateway.runtime.snapshot import RouteTo
from gateway.upstream import UpstreamResponse
from gateway.upstream import errors as upstream_errors

logger = logging.getLogger(__name__)

CLIENT_STALL_S = 60.0  # a client that takes no byte for this long has left
WATCH_AFTER_S = 0.1  # most answers are over by then, and need no task that looks for the client
CHECKPOINT_S = 3.0
DRAIN_S = 120.0  # how long a vendor's answer is read on for a client that has left
RELEASE_S = 1.0  # how long a finished answer may take to end its connection in order
COMMENT = b": waiting\n\n"  # proxies keep a connection that says something

FAULTS: dict[type[upstream_errors.UpstreamError], Fault] = {
    upstream_errors.ConnectFailed: Fault.CONNECT_FAILED,
    upstream_errors.ConnectTimeout: Fault.CONNECT_TIMEOUT,
    upstream_errors.PoolExhausted: Fault.NO_CAPACITY,
    upstream_errors.FirstByteTimeout: Fault.FIRST_BYTE_TIMEOUT,
    upstream_errors.IdleTimeout: Fault.IDLE_TIMEOUT,
    upstream_errors.TotalTimeout: Fault.TOTAL_TIMEOUT,
    upstream_errors.ConnectionLost: Fault.CONNECTION_LOST,
    upstream_errors.ProtocolError: Fault.PROTOCOL_ERROR,
    upstream_errors.InvalidRequest: Fault.CONNECT_FAILED,
}

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Exchange:
    """One accepted request on its way to a vendor and back, and to its one settlement."""

    def __init__(self, runtime: Runtime, accepted: Accepted, headers: Headers) -> None:
        self._runtime = runtime
        self._accepted = accepted
        self._headers = headers
        self._loop = asyncio.get_running_loop()
        self._cover = Cover(runtime, accepted)
        self._settling = Settling(runtime, accepted, self._cover)
        self._attempt: Attempt | None = None
        self._permit: Permit | None = None
        self._response: UpstreamResponse | None = None
        self._send: Send
        self._is_head_sent = False
        self._status = 0
        self._is_client_gone = False
        self._is_stalled = False
        self._is_closing = False
        self._is_waiting_for_head = False
        self._sending_since_s = 0.0
        self._last_sent_s = self._loop.time()
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._checkpoint_at_s = 0.0
        self._drain_until_s: float | None = None
        self._kept = Capture(ANSWER_BYTES_MAX) if accepted.claim is not None else None

    async def answer(self, send: Send, receive: Receive) -> None:
        """Forward, answer, settle, record. Raises nothing but the server's own cancellation."""
        self._send = send
        watch = self._loop.call_later(WATCH_AFTER_S, self._watch, receive)
        if self._accepted.request.stream:
            self._timer = self._loop.call_later(settings.HEARTBEAT_S, self._beat)
        try:
            await self._forward()
        except asyncio.CancelledError:
            await self._cancelled()
        except Exception:
            logger.exception("Exchange %s failed", self._accepted.arrival.request_id)
            await self._failed_here()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            watch.cancel()
            if self._watcher is not None:
                self._watcher.cancel()
            if self._response is not None:
                self._response.abort()
            self._settling.leave()

    async def _forward(self) -> None:
        """Try the routes in turn until one has answered, or none is left."""
        last = b""
        for route in self._accepted.routes:
            permit = self._runtime.breakers.enter(route)
            if permit is None:
                continue
            try:
                last = await self._call(route, permit)
            finally:
                permit.leave()
            attempt = self._attempt
            failure = attempt.relay.failure if attempt is not None else None
            if failure is None or self._is_client_gone or not failure.may_try_next:
                break
        if self._attempt is None:
            await self._refuse(self._runtime.breakers.refusal(self._accepted.routes))
        else:
            await self._end(self._attempt, last)

    async def _call(self, route: RouteTo, permit: Permit) -> bytes:
        """Ask one route; once more, without them, where its vendor refuses stream_options."""
        self._permit = permit
        attempt = self._begin(route, asks_usage=route.vendor.accepts_stream_options)
        last = await self._run(attempt)
        failure = attempt.relay.failure
        refuses = failure is not None and failure.rejects_stream_options
        if refuses and attempt.asks_usage and not self._is_client_gone:
            attempt = self._begin(route, asks_usage=False)
            last = await self._run(attempt)
        if attempt.relay.ended:  # not so where a client has left: that says nothing of the vendor
            permit.ended(attempt.relay.failure or attempt.relay.mid_stream_failure)
        return last

    def _begin(self, route: RouteTo, *, asks_usage: bool) -> Attempt:
        request = self._accepted.request
        relay = AnswerRelay(
            client_streams=request.stream,
            client_wants_usage=request.include_usage,
            completion_id=self._settling.completion_id,
            model=self._accepted.model.name,
            vendor_model=route.vendor_model,
            hidden=route.vendor.hidden_words,
            n=request.n,
        )
        body = vendor_body(
            request, vendor_model=route.vendor_model, include_usage=request.stream and asks_usage
        )
        attempt = Attempt(route, relay, body, self._loop.time(), asks_usage=asks_usage)
        self._attempt = attempt
        self._settling.begin(attempt)
        self._cover.begin(attempt)
        return attempt

    async def _run(self, attempt: Attempt) -> bytes:
        """One call of one vendor. Answers what the client gets last, before the closing bytes."""
        relay = attempt.relay
        response: UpstreamResponse | None = None
        last = b""
        try:
            upstream = self._runtime.upstream(attempt.route.vendor)
            self._is_waiting_for_head = True
            response = self._response = await upstream.open(
                PATH, attempt.request_headers, attempt.body
            )
            self._is_waiting_for_head = False
            attempt.answered(response.status, response.headers, self._loop.time())
            relay.receive_head(response.status, response.headers)
            last = await self._pump(attempt, response)
        except upstream_errors.UpstreamError as error:
            attempt.fault = FAULTS.get(type(error), Fault.PROTOCOL_ERROR)
            if not self._is_client_gone:
                last = relay.receive_fault(attempt.fault, request_sent=error.request_sent)
        finally:
            self._is_waiting_for_head = False
        attempt.ended_s = self._loop.time()
        if response is not None:
            self._release(response)
        return last

    async def _pump(self, attempt: Attempt, response: UpstreamResponse) -> bytes:
        """Pass bytes on as they come, until the answer has said that it is over."""
        relay, loop = attempt.relay, self._loop
        while True:
            data = await response.read()
            now_s = loop.time()
            if not data:
                return relay.receive_end()
            attempt.received(data, now_s)
            out = relay.receive(data)
            if relay.ended:
                return out
            if out:
                await self._write(out)
            size_bytes = attempt.capture.size_bytes
            if size_bytes >= self._cover.look_at_bytes and not await self._carries(attempt):
                response.abort()
                return relay.finish_early("length")
            if now_s >= self._checkpoint_at_s:
                self._checkpoint(now_s)
            if self._drain_until_s is not None and now_s >= self._drain_until_s:
                return b""

    async def _carries(self, attempt: Attempt) -> bool:
        """One body is over when it is seen, so there is nothing to end."""
        if not attempt.relay.reads_events:
            return True
        return await self._cover.carries(attempt.capture.size_bytes)

    async def _refuse(self, error: ApiError) -> None:
        """Since the hold, others have become the probes of all routes: nobody was called."""
        self._is_closing = True
        self._settling.set_end(
            status_code=error.status, error_code=error.code, is_client_gone=self._is_client_gone
        )
        await self._settling.let_go()
        await self._write_last(b"", error)
        self._settling.record(self._headers)
        await self._keep_for_repeats(error)

    async def _end(self, attempt: Attempt, last: bytes) -> None:
        """Settle, then close the answer: what a client has read to the end is settled."""
        self._is_closing = True
        if last and attempt.relay.complete and self._accepted.request.stream:
            await self._write(last)
            last = b""
        failure = attempt.relay.failure
        error = failure.error if failure is not None else None
        status = 200 if self._is_head_sent or error is None else error.status
        self._settling.set_end(
            status_code=status,
            error_code=error.code if error is not None else attempt.relay.error_code,
            is_client_gone=self._is_client_gone,
        )
        await self._settling.settle()
        if attempt.relay.ended or not self._is_client_gone:
            closing = attempt.relay.closing(self._settling.usage_with_cost())
            await self._write_last(last + closing, error)
        self._settling.record(self._headers)
        await self._keep_for_repeats(error)

    async def _write_last(self, last: bytes, error: ApiError | None) -> None:
        if error is not None and not self._is_head_sent:
            await self._write_error(error)
            return
        if error is not None:  # a heartbeat went out before it failed
            last = error.event()
        if self._accepted.request.stream:
            if last:
                await self._write(last)
            await self._send_body(b"", more=False)
            return
        headers = [*self._headers, *self._settling.cost_headers()]
        await self._start(200, headers, length=len(last))
        await self._send_body(last, more=False)

    async def _write_error(self, error: ApiError) -> None:
        body = self._settling.error_body = error.body()
        headers = [*self._headers, *encoded(error.headers())]
        await self._start(error.status, headers, length=len(body))
        await self._send_body(body, more=False)

    async def _write(self, data: bytes) -> None:
        if not self._is_head_sent:
            if self._permit is not None and data is not COMMENT:
                self._permit.spoke()
            await self._start(200, [*self._headers, *STREAM_HEADERS])
        await self._send_body(data, more=True)

    async def _send_body(self, data: bytes, *, more: bool) -> None:
        if self._kept is not None:
            self._kept.add(data)
        if self._is_client_gone:
            return
        self._settling.sent_bytes += len(data)
        self._sending_since_s = self._last_sent_s = self._loop.time()
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._sending_since_s = 0.0

    async def _start(self, status: int, headers: Headers, length: int | None = None) -> None:
        self._is_head_sent = True
        self._settling.head_sent(self._loop.time())
        headers = [*headers, self._settling.processing_header()]
        if length is not None:
            headers = [*headers, (b"content-length", str(length).encode())]
            if status == 200:  # noqa: PLR2004  # an error brings its own
                headers.extend(JSON_HEADERS)
        self._settling.sent_headers = headers
        self._status = status
        if self._is_client_gone:
            return
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def _watch(self, receive: Receive) -> None:
        self._watcher = self._loop.create_task(self._watch_client(receive))

    async def _watch_client(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._client_left()

    def _client_left(self) -> None:
        self._is_client_gone = True
        attempt = self._attempt
        if attempt is not None and self._drains(attempt):
            self._drain_until_s = self._loop.time() + DRAIN_S
        elif self._response is not None:
            self._response.abort()
        elif self._is_waiting_for_head and self._task is not None:
            self._is_stalled = True
            self._task.cancel()

    def _drains(self, attempt: Attempt) -> bool:
        """By the vendor's policy, and always where a repeat may come for the whole answer."""
        return attempt.route.vendor.drains_when_client_is_gone or self._kept is not None

    async def _keep_for_repeats(self, error: ApiError | None) -> None:
        claim, kept = self._accepted.claim, self._kept
        if claim is None or kept is None:
            return
        idempotency = self._runtime.idempotency
        if (error is not None and may_be_repeated(error)) or not self._status:
            await idempotency.release(claim)
        else:
            await idempotency.keep(claim, self._status, self._settling.sent_headers, kept)

    def _beat(self) -> None:
        """Say something on a line that was silent for too long; see that a client is stuck.

        Silence is the client's: a vendor's comments end no silence, since they go no further.
        """
        now_s, pause_s = self._loop.time(), settings.HEARTBEAT_S
        silent_s = now_s - self._last_sent_s
        if self._sending_since_s:
            if now_s - self._sending_since_s > CLIENT_STALL_S and self._task is not None:
                self._is_stalled = True
                self._task.cancel()
                return
        elif silent_s < settings.HEARTBEAT_S:
            pause_s -= silent_s
        else:
            self._runtime.background.start(self._keep_alive(), "heartbeat")
        self._timer = self._loop.call_later(pause_s, self._beat)

    async def _keep_alive(self) -> None:
        if not self._is_closing and not self._sending_since_s:
            await self._write(COMMENT)

    def _checkpoint(self, now_s: float) -> None:
        """Keep what was produced so far, so that a crash loses a few seconds of it at most."""
        if self._checkpoint_at_s:
            self._runtime.background.start(self._settling.checkpoint(), "check-point")
        self._checkpoint_at_s = now_s + CHECKPOINT_S

    def _release(self, response: UpstreamResponse) -> None:
        """Give the connection back if the answer ends in order; else close it."""
        self._response = None
        if not response.is_ended:
            self._runtime.background.start(_read_out(response), "release")

    async def _cancelled(self) -> None:
        """The client has left or is stuck, or the server stops: settle what there is.

        In the background, for which a stopping process waits: a second cancellation changes
        nothing about the money.
        """
        if self._task is not None:
            self._task.uncancel()
        self._is_client_gone = self._is_client_gone or self._is_stalled
        if self._response is not None:
            self._response.abort()
        attempt = self._attempt
        if attempt is None:
            return
        attempt.ended_s = attempt.ended_s or self._loop.time()
        if self._is_client_gone:
            work = self._finish_without_client()
        else:
            work = self._end(attempt, attempt.relay.receive_fault(Fault.CONNECTION_LOST))
        await asyncio.shield(self._runtime.background.start(work, "settlement"))

    async def _failed_here(self) -> None:
        """A fault of ours: whatever it is, the exchange is settled."""
        self._is_closing = True
        error = errors.internal_error(money_may_have_moved=True)
        if not self._is_head_sent and not self._is_client_gone:
            await self._write_error(error)
        self._settling.set_end(
            status_code=error.status, error_code=error.code, is_client_gone=self._is_client_gone
        )
        try:
            await self._settling.settle()
            self._settling.record(self._headers)
        except Exception:
            logger.exception("Exchange %s is let go", self._accepted.arrival.request_id)
            await self._settling.let_go()

    async def _finish_without_client(self) -> None:
        self._settling.set_end(status_code=499, error_code="client_gone", is_client_gone=True)
        await self._settling.settle()
        self._settling.record(self._headers)


async def _read_out(response: UpstreamResponse) -> None:
    try:
        async with asyncio.timeout(RELEASE_S):
            while await response.read():
                pass
    except (TimeoutError, upstream_errors.UpstreamError):
        response.abort()
