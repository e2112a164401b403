"""One vendor attempt's answer, from its bytes to the client's bytes.

What the client asked for decides the form it gets; what arrives decides how it is read, whatever
it is labelled. The driver feeds the answer with `receive_head`, `receive` and one of
`receive_end`, `receive_fault` or `finish_early`, and sends the client what these return, until
`ended`. Then, where `failure` is set, nothing was sent: answer with an HTTP error, or try the next
route. Where `complete`, the last bytes are `closing()`: they may wait for the settlement, since
they carry the usage and the end mark of a stream, or the whole of a body.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from gateway import errors
from gateway.relay.assemble import Fold, mended, split
from gateway.relay.body import (
    MAX_ERROR_BODY_BYTES,
    client_body,
    flaw_of,
    json_or_none,
    lines_of,
    said_by,
    staff_text,
    whole,
)
from gateway.relay.failures import (
    TIMEOUTS,
    Failure,
    Fault,
    VendorError,
    decode_headers,
    failure_of_fault,
    failure_of_status,
    find_error,
    retry_after,
    status_of,
    unreadable,
)
from gateway.relay.inflate import InflatedTooLargeError, InflateError, Inflater
from gateway.relay.sse import MAX_EVENT_BYTES
from gateway.relay.stream import (
    EventStream,
    Facts,
    Outcome,
    Wish,
    client_chunk,
    event_of,
)

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of an answer that must be held whole: one JSON body, or a stream folded into one."""
INFLATE_BASE_BYTES = 1024 * 1024
INFLATE_RATIO = 200
"""An answer may grow by this much, over the base, when it is decompressed."""
MAX_LAYERS = 2
"""Of compression, one around the other: a vendor behind a proxy that compresses as well."""
MAX_LABEL_CHARS = 40

HIDDEN_WORD = "[provider]"
DONE_EVENT = b"data: [DONE]\n\n"
EVENT_STREAM = "text/event-stream; charset=utf-8"
JSON = "application/json"

_BLANKS = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_NOTHING_YET = re.compile(rb"\A(?:[ \t\r\n\x00\x1e]|\xef\xbb\xbf)*")
_GZIP_START = b"\x1f"  # no text begins so, whatever it is labelled
_EVENT_STARTS = b":deirDEIR"  # a comment, data, event, id, retry
_ERROR_STATUSES_FROM = 300  # a redirect is never followed, and so is an error as well

JsonObject = dict[str, Any]


class AnswerRelay:
    """The state of one attempt's answer.

    `ended` means that there is nothing more to wait for, `complete` that the end was clean.
    `failure` is set where the attempt failed before anything was sent, `mid_stream_failure` where
    after that: the client's stream then ends with an error event.
    """

    __slots__ = (
        "_body",
        "_client_streams",
        "_completion",
        "_completion_text",
        "_facts",
        "_fold",
        "_has_begun",
        "_hidden",
        "_inflaters",
        "_label",
        "_max_body_bytes",
        "_reader",
        "_retry_after_s",
        "_status",
        "_stream",
        "_wish",
        "complete",
        "ended",
        "failure",
        "mid_stream_failure",
    )

    def __init__(
        self,
        *,
        client_streams: bool,
        client_wants_usage: bool,
        completion_id: str,
        model: str,
        vendor_model: str = "",
        hidden: Iterable[str] = (),
        n: int = 1,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """Prepare for one attempt.

        `model` is the public name, `vendor_model` the one the vendor was sent, `n` the number of
        choices asked for. `hidden` are words that a client must not see in an error: the vendor's
        name, its URL, our credential.
        """
        self._client_streams = client_streams
        self._wish = Wish(completion_id, model, client_wants_usage, n)
        self._hidden = {**dict.fromkeys(hidden, HIDDEN_WORD), vendor_model: model}
        self._max_body_bytes = max_body_bytes
        self._facts = Facts()
        self._fold = None if client_streams else Fold()
        self._stream = EventStream(
            self._wish,
            self._facts,
            self._fold,
            max_event_bytes=max_event_bytes,
            max_folded_bytes=max_body_bytes,
        )
        self._status = 0
        self._retry_after_s: int | None = None
        self._has_begun = False
        self._label = ""
        self._inflaters: list[Inflater] = []
        self._reader: Callable[[bytes], bytes] = self._sniff
        self._body = bytearray()
        self._completion: JsonObject | None = None
        self._completion_text = b""
        self.failure: Failure | None = None
        self.mid_stream_failure: Failure | None = None
        self.ended = False
        self.complete = False

    @property
    def completion(self) -> JsonObject | None:
        """What was produced so far as one chat.completion; None where that is nothing.

        Only for a client that does not stream: what a stream produced is not kept.
        """
        if self._completion is not None:
            return self._completion
        return self._fold.completion() if self._fold is not None and self.has_output else None

    def receive_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Take the status line and headers; what the vendor labels its body is not believed."""
        fields = decode_headers(headers)
        self._status = status
        self._retry_after_s = retry_after(fields)
        if self._is_error_status:
            self._reader = self._receive_error
        self._label = fields.get("content-encoding", "").strip().lower()[:MAX_LABEL_CHARS]
        if "deflate" in self._label:  # all else is seen by its first byte
            self._inflaters = [_inflater("deflate")]

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the body; return what the client gets now.

        After the end only usage is still read, for a vendor that sends it late.
        """
        try:
            data = self._plain(data)
        except (InflateError, InflatedTooLargeError) as error:
            return self._fail(self._unreadable(repr(error)))
        return self._reader(data)

    def receive_end(self) -> bytes:
        """Take the orderly end of the body."""
        out = self._flush()
        if self.ended:
            return out
        if self._is_error_status:
            return self._fail(self._failure_of_body())
        return out + self._finish(None)

    def receive_fault(self, fault: Fault, *, request_sent: bool = True) -> bytes:
        """Take what broke instead of an end; an answer that was whole already stays good."""
        out = self._flush()
        if self.ended:
            return out
        failure = failure_of_fault(fault, request_sent=request_sent)
        if self._is_error_status and self._body:
            return self._fail(self._failure_of_body())
        return out + self._finish(failure)

    def finish_early(self, reason: str = "length") -> bytes:
        """End a stream on our own account, well-formed: the money or the time is used up.

        Does nothing on an answer that comes as one body; the driver aborts that.
        """
        out = self._flush()
        if self.ended or self._reader != self._receive_events:
            return out
        return out + self._stream.finish_choices(reason) + self._complete()

    def closing(self, usage: JsonObject | None = None) -> bytes:
        """Return the client's last bytes after a clean end, else b"".

        For a stream that is the usage chunk, where the client asked and there is usage, and
        [DONE]; for a body the whole of it. `usage` replaces the vendor's: with a cost, or an
        estimate.
        """
        if not self.complete:
            return b""
        if not self._client_streams:
            return self._client_body(usage)
        usage = self.raw_usage if usage is None else usage
        if self._wish.wants_usage and usage is not None:
            return self.usage_chunk(usage) + DONE_EVENT
        return DONE_EVENT

    def usage_chunk(self, usage: JsonObject) -> bytes:
        """Return the event that carries usage and nothing else."""
        stream = self._stream
        return event_of(
            {**stream.usage_chunk, **stream.chunk_head(), "choices": [], "usage": usage}
        )

    # --- what the driver and the settlement look at ---------------------------------------------

    @property
    def head(self) -> str:
        """The content type to send once the first bytes may go."""
        return EVENT_STREAM if self._client_streams else JSON

    @property
    def reads_events(self) -> bool:
        """Say whether the vendor sends events, so that the answer can end before its end."""
        return self._reader == self._receive_events

    @property
    def sent_any(self) -> bool:
        return self._stream.sent_any

    @property
    def has_output(self) -> bool:
        """Say whether anything came that a model produced: text, thinking, a call, a refusal."""
        return self._facts.has_output

    @property
    def finish_reason(self) -> str | None:
        return self._facts.finish_reason

    @property
    def vendor_id(self) -> str | None:
        """The id that the vendor gave its answer."""
        return self._facts.vendor_id

    @property
    def vendor_model(self) -> str | None:
        """The model that the vendor says it used."""
        return self._facts.vendor_model

    @property
    def raw_usage(self) -> JsonObject | None:
        """The last usage the vendor sent, as received; see `billing.usage.read_usage`."""
        return self._facts.raw_usage

    @property
    def event_count(self) -> int:
        """How many chunks were relayed or folded."""
        return self._stream.event_count

    @property
    def skipped_events(self) -> int:
        """How many events were left out because they were no JSON."""
        return self._stream.skipped_events

    @property
    def error_in_stream(self) -> bool:
        return self.mid_stream_failure is not None

    @property
    def error_code(self) -> str | None:
        """The code of what the client was told, wherever in the answer it failed."""
        failure = self.failure or self.mid_stream_failure
        return None if failure is None else failure.error.code

    # --- what arrives ---------------------------------------------------------------------------

    @property
    def _is_error_status(self) -> bool:
        return self._status >= _ERROR_STATUSES_FROM

    def _plain(self, data: bytes) -> bytes:
        """Return the data without compression, which shows by itself, whatever the label."""
        for inflater in self._inflaters:
            data = inflater.feed(data)
        while data and not self._has_begun:
            if data.startswith(_GZIP_START) and len(self._inflaters) < MAX_LAYERS:
                self._inflaters.append(_inflater("gzip"))
                data = self._inflaters[-1].feed(data)
            else:
                self._has_begun = True
        return data

    def _sniff(self, data: bytes) -> bytes:
        """Find out from the first byte that is not blank how the answer is to be read."""
        start = _NOTHING_YET.sub(b"", bytes(self._body) + data, count=1)
        self._body = bytearray()
        if _BOM.startswith(start):  # also where nothing is left
            self._body += start
            return b""
        is_events = start[:1] in _EVENT_STARTS
        self._reader = self._receive_events if is_events else self._receive_body
        return self._reader(start)

    def _receive_events(self, data: bytes) -> bytes:
        stream = self._stream
        out = stream.push(data)
        if stream.outcome is not None and not self.ended:
            out += self._conclude(stream.outcome)
        return out

    def _receive_body(self, data: bytes) -> bytes:
        if self.ended:
            return b""
        if len(self._body) + len(data) > self._max_body_bytes:
            return self._fail(failure_of_fault(Fault.TOO_LARGE, request_sent=True))
        self._body += data
        return b""

    def _receive_error(self, data: bytes) -> bytes:
        self._body += data[: MAX_ERROR_BODY_BYTES - len(self._body)]
        return b""

    def _flush(self) -> bytes:
        if self._reader != self._receive_events:
            return b""
        out = self._stream.flush()
        if self._stream.outcome is not None and not self.ended:
            out += self._conclude(self._stream.outcome)
        return out

    def _conclude(self, outcome: Outcome) -> bytes:
        """End as the stream says it ended."""
        if isinstance(outcome, VendorError):
            return self._fail(self._failure_said(status_of(outcome), outcome))
        if isinstance(outcome, Fault):
            return self._fail(failure_of_fault(outcome, request_sent=True))
        return self._complete() if self._facts.seen else self._fail(self._cut())

    # --- one body -------------------------------------------------------------------------------

    def _finish(self, fault: Failure | None) -> bytes:
        """End an answer; `fault` is what to fail with where it is no whole one."""
        if self._reader == self._receive_body:
            return self._finish_body(fault)
        return self._complete() if self._facts.is_finished else self._fail(fault or self._cut())

    def _finish_body(self, fault: Failure | None) -> bytes:
        """Read what came as one body."""
        text = bytes(self._body).strip(_BLANKS)
        value = json_or_none(text)
        lines = lines_of(value, text)
        if lines is not None:
            self._reader = self._receive_events
            out = self._receive_events(lines)
            return out if self.ended else out + self._finish(fault)
        said = None
        if isinstance(value, dict):
            value = mended(value)
            self._facts.note_usage(value)
            said = find_error(value)
        flaw = flaw_of(value, text)
        if said is not None:
            return self._fail(fault or self._failure_said(status_of(said), said))
        if flaw is not None:
            return self._fail(fault or self._unreadable(flaw))
        completion = whole(value)
        self._facts.note(completion)
        out = b""
        if self._client_streams:
            out = b"".join(map(event_of, split(client_chunk(completion, self._wish))))
            self._stream.sent_any = True
        else:
            self._completion = completion
            self._completion_text = text if completion is value else b""
        return out + self._complete()

    def _client_body(self, usage: JsonObject | None) -> bytes:
        if self._completion is not None:
            return client_body(self._completion, self._completion_text, self._wish, usage)
        folded = self._fold.completion() if self._fold is not None else {"choices": []}
        return client_body(folded, b"", self._wish, usage or self.raw_usage)

    # --- ends -----------------------------------------------------------------------------------

    def _complete(self) -> bytes:
        self.ended = True
        self.complete = True
        self._stream.stop()
        return b""

    def _fail(self, failure: Failure) -> bytes:
        """End the attempt; return the error event where the client's stream has begun."""
        if self.ended:
            return b""
        self.ended = True
        self._stream.stop()
        if self.sent_any or self.has_output:
            failure = replace(
                failure,
                error=_mid_stream_error(failure),
                may_try_next=False,
                may_have_billed=True,
                rejects_stream_options=False,
            )
        if not self.sent_any:
            self.failure = failure
            return b""
        self.mid_stream_failure = failure
        return failure.error.event()

    def _failure_said(self, status: int | None, said: VendorError) -> Failure:
        return failure_of_status(
            status, said, retry_after_s=self._retry_after_s, hidden=self._hidden
        )

    def _failure_of_body(self) -> Failure:
        """Return what a body under an error status says."""
        said, value = said_by(bytes(self._body).strip(_BLANKS))
        self._facts.note_usage(value)
        return self._failure_said(self._status, said)

    def _cut(self) -> Failure:
        if self._facts.seen:
            return self._unreadable("answer ended early")
        return self._unreadable("no answer in the stream: " + staff_text(self._stream.stray))

    def _unreadable(self, what: str) -> Failure:
        label = f" (content encoding {self._label})" if self._label else ""
        return unreadable(self._status, what + label)


def _inflater(encoding: str) -> Inflater:
    return Inflater(encoding, base_bytes=INFLATE_BASE_BYTES, ratio=INFLATE_RATIO)


def _mid_stream_error(failure: Failure) -> errors.ApiError:
    if failure.fault in TIMEOUTS:
        return errors.upstream_timeout(may_have_billed=True)
    return errors.upstream_failed_mid_response()
