"""One connection to a vendor: sockets, deadlines and back-pressure around the parser."""

import asyncio
from typing import Final, Protocol

from gateway.upstream.errors import (
    ConnectionLost,
    FirstByteTimeout,
    IdleTimeout,
    ProtocolError,
    TotalTimeout,
    UpstreamError,
)
from gateway.upstream.parser import ResponseParser
from gateway.upstream.response import UpstreamResponse
from gateway.upstream.timeouts import Timeouts
from gateway.upstream.wire import KernelView

# A reader that lags by more than this makes us stop reading, and TCP makes the vendor stop
# sending. One read past the mark is held too: 256 KiB at most, on asyncio and on uvloop.
READ_HIGH_WATER_BYTES: Final = 64 * 1024
READ_MOST_BYTES: Final = READ_HIGH_WATER_BYTES + 256 * 1024  # what a reader can get at once
WRITE_PIECE_BYTES: Final = 128 * 1024
# Loops round timers to a millisecond; without slack a timer that fires early would spin.
TIMER_SLACK_S: Final = 0.001


class Owner(Protocol):
    """What a connection tells its pool."""

    def release(self, connection: "Connection") -> None: ...

    def forget(self, connection: "Connection") -> None: ...

    def lost(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """Carries one call at a time; `send` starts it and returns the answer to be read.

    One timer a connection: it is armed for the nearest deadline, and when it fires early because
    bytes have moved the deadline, it arms itself again. A busy stream costs no timers.
    """

    __slots__ = (
        "_body_started",
        "_is_paused",
        "_is_write_paused",
        "_kernel",
        "_loop",
        "_owner",
        "_parser",
        "_quiet_since",
        "_response",
        "_sent_before_bytes",
        "_sent_bytes",
        "_timeouts",
        "_timer",
        "_total_deadline",
        "_transport",
        "_unsent",
        "idle_since",
    )

    def __init__(self, owner: Owner, timeouts: Timeouts, loop: asyncio.AbstractEventLoop) -> None:
        self.idle_since = 0.0
        self._owner = owner
        self._timeouts = timeouts
        self._loop = loop
        self._parser = ResponseParser()
        self._transport: asyncio.Transport | None = None  # None before and after its life
        self._response: UpstreamResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._kernel: KernelView | None = None
        self._unsent: memoryview | None = None
        self._sent_bytes = 0
        self._sent_before_bytes = 0  # the present call
        self._is_paused = False
        self._is_write_paused = False
        self._body_started = False
        self._quiet_since = 0.0
        self._total_deadline = 0.0

    # What the client and the answer call.

    @property
    def is_usable(self) -> bool:
        return (
            self._transport is not None
            and self._response is None
            and not self._transport.is_closing()
        )

    @property
    def is_alive(self) -> bool:
        """Whether an idle connection may be used, by what the kernel knows at this moment."""
        return self.is_usable and self._kernel is not None and not self._kernel.is_closing

    @property
    def is_reused(self) -> bool:
        """Whether the present call is not the first one."""
        return self._sent_before_bytes > 0

    def send(self, head: bytes, body: bytes, total_deadline: float) -> UpstreamResponse:
        """Start a call on a usable connection; nothing is ever sent twice."""
        if self._transport is None or self._response is not None:
            raise RuntimeError("a connection carries one call at a time")
        self._response = UpstreamResponse(self)
        self._parser.begin()
        self._body_started = False
        self._quiet_since = self._loop.time()
        self._total_deadline = total_deadline
        self._arm(self._next_deadline())
        self._sent_before_bytes = self._sent_bytes
        self._sent_bytes += len(head) + len(body)
        response = self._response
        if len(body) <= WRITE_PIECE_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._unsent = memoryview(body)
            self._write_more()
        return response

    def resume(self) -> None:
        """The reader has taken everything: let the vendor send again."""
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._quiet_since = self._loop.time()
            self._transport.resume_reading()
            self._arm(self._next_deadline())

    def fail(self, error: UpstreamError, *, request_sent: bool = True) -> None:
        """End the answer with `error`, and the connection with it."""
        response = self._response
        if response is not None:
            self._response = None
            error.request_sent = request_sent
            error.response_started = response.status != 0
            response.end(error)
        self.discard()

    def discard(self) -> None:
        """Close now and leave the pool; idle connections need no farewell."""
        transport = self._transport
        if transport is None:
            return
        self._transport = None
        self._unsent = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport.abort()
        self._owner.forget(self)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's is a Transport
        self._kernel = KernelView(transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self.discard()  # bytes that nobody asked for
            return
        parser = self._parser
        violation: ProtocolError | None = None
        try:
            parser.feed(data)
        except ProtocolError as error:
            violation = error
        self._pass_on(response)
        if violation is not None:
            self.fail(violation)
        elif parser.complete:
            self._finish(response)

    def eof_received(self) -> None:
        self._end_of_stream("the vendor closed the connection before the end of its answer")

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self.eof_received()
        else:
            self.fail(ConnectionLost("the connection to the vendor broke"))
        self._parser.detach()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._write_more()

    # Leaves.

    def _pass_on(self, response: UpstreamResponse) -> None:
        parser = self._parser
        if parser.head_complete and not response.status:
            response.begin(parser.status, parser.headers)
        if not parser.body_pieces:
            return
        self._quiet_since = self._loop.time()
        if not self._body_started and not parser.complete:
            self._body_started = True
            self._arm(self._next_deadline())  # from here on the deadline only moves away
        waiting_bytes = response.deliver(parser.take_body())
        if waiting_bytes > READ_HIGH_WATER_BYTES and not parser.complete and not self._is_paused:
            self._is_paused = True
            if self._transport is not None:
                self._transport.pause_reading()

    def _finish(self, response: UpstreamResponse) -> None:
        """The answer is whole; the connection goes back, if it is clean."""
        self._response = None
        response.end(None)
        transport = self._transport
        if (
            transport is not None
            and not self._is_paused
            and self._parser.keep_alive
            and self._unsent is None
            and not transport.get_write_buffer_size()
            and not transport.is_closing()
        ):
            self._owner.release(self)
        else:
            self.discard()

    def _end_of_stream(self, words: str) -> None:
        response = self._response
        if response is not None and self._parser.ends_with_connection():
            self._response = None
            response.end(None)
            self.discard()
        elif response is not None:
            self.fail(ConnectionLost(words), request_sent=not self._is_unheard())
        else:
            self.discard()

    def _is_unheard(self) -> bool:
        """Whether the vendor closed before any byte of this request had come to it.

        A FIN acknowledges all that came before it. So where it acknowledges nothing of this
        request, the vendor decided to close before the request was there, and can no more answer
        it. A reset proves nothing: it may come from a vendor that read everything.
        """
        if self._kernel is None or not self._parser.heard_nothing:
            return False
        return self._kernel.took_no_more_than(self._sent_before_bytes)

    def _write_more(self) -> None:
        transport = self._transport
        while self._unsent is not None and not self._is_write_paused:
            if transport is None or transport.is_closing():
                return  # the loop tells us of the loss in its own time
            piece, rest = self._unsent[:WRITE_PIECE_BYTES], self._unsent[WRITE_PIECE_BYTES:]
            self._unsent = rest or None
            self._quiet_since = self._loop.time()
            transport.write(piece)

    def _next_deadline(self) -> float:
        if self._is_paused:
            return self._total_deadline
        quiet_s = self._timeouts.idle_s if self._body_started else self._timeouts.first_byte_s
        return min(self._quiet_since + quiet_s, self._total_deadline)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._response is None:
            return
        now = self._loop.time()
        deadline = self._next_deadline()
        if deadline > now + TIMER_SLACK_S:
            self._arm(deadline)
        elif deadline == self._total_deadline:
            self.fail(TotalTimeout("the vendor's answer took longer than the whole call may"))
        elif self._body_started:
            self.fail(IdleTimeout("the vendor fell silent in the middle of its answer"))
        else:
            self.fail(FirstByteTimeout("the vendor did not begin to answer in time"))
