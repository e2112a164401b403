"""One vendor attempt's answer, from its bytes to the client's bytes.

What the client asked for decides the form it gets; what arrives decides how it is read. The
driver feeds the answer with `receive_head`, `receive` and one of `receive_end`, `receive_fault`
or `finish_early`, and sends the client what these return. Then it looks at `failure` (nothing was
sent: answer with an HTTP error, or try the next route) or, where `complete`, sends `closing()`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from billing.usage import find_usage
from gateway import errors
from gateway.relay import template as templates
from gateway.relay.assemble import CHUNK, Fold, has_output, index_of, split
from gateway.relay.failures import (
    TIMEOUTS,
    Failure,
    Fault,
    VendorError,
    decode_headers,
    failure_of_fault,
    failure_of_status,
    find_error,
    read_error,
    retry_after,
    status_of,
    unreadable,
)
from gateway.relay.inflate import InflatedTooLargeError, InflateError, Inflater
from gateway.relay.json_text import decode, encode, replace_identity
from gateway.relay.sse import (
    DONE,
    MALFORMED,
    MAX_EVENT_BYTES,
    Event,
    EventParser,
    EventTooLargeError,
    LineBuffer,
    read_events,
)

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of an answer that must be held whole: one JSON body, or a stream folded into one."""
MAX_ERROR_BODY_BYTES = 64 * 1024
INFLATE_BASE_BYTES = 1024 * 1024
INFLATE_RATIO = 200
"""An answer may grow by this much, over the base, when it is decompressed."""
LEARN_EVERY_EVENTS = 32
"""Learning costs about as much as decoding this many events, so it must not happen more often."""
FREE_LEARNINGS = 4

HIDDEN_WORD = "[provider]"
DONE_EVENT = b"data: [DONE]\n\n"
EVENT_STREAM = "text/event-stream; charset=utf-8"
JSON = "application/json"

_BLANKS = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_EVENT_STARTS = b":deir"  # a comment, data, event, id, retry
_CONTENT_START = 300

JsonObject = dict[str, Any]


class AnswerRelay:
    """The state of one attempt's answer.

    `head` is the content type to send once the first bytes may go. `raw_usage` is the last usage
    the vendor sent, as received. `vendor_id` and `vendor_model` are what it called itself.
    `failure` is set where the attempt failed before anything was sent, `mid_stream_failure` where
    after that (the client's stream then ends with an error event). `complete` means a clean end.
    `event_count` counts the chunks that were relayed or folded.
    """

    __slots__ = (
        "_body",
        "_client_streams",
        "_client_wants_usage",
        "_completion",
        "_completion_id",
        "_created",
        "_finished",
        "_fold",
        "_folded_bytes",
        "_held",
        "_hidden",
        "_inflater",
        "_learnings",
        "_lines",
        "_max_body_bytes",
        "_max_event_bytes",
        "_model",
        "_n",
        "_ordinary",
        "_parser",
        "_plain_body",
        "_reader",
        "_retry_after_s",
        "_seen",
        "_status",
        "_template",
        "_usage_chunk",
        "complete",
        "ended",
        "error_in_stream",
        "event_count",
        "failure",
        "finish_reason",
        "has_output",
        "mid_stream_failure",
        "raw_usage",
        "sent_any",
        "skipped_events",
        "vendor_id",
        "vendor_model",
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
        self._client_wants_usage = client_wants_usage
        self._completion_id = completion_id
        self._model = model
        self._n = n
        self._hidden = {**dict.fromkeys(hidden, HIDDEN_WORD), vendor_model: model}
        self._max_event_bytes = max_event_bytes
        self._max_body_bytes = max_body_bytes
        self._status = 0
        self._retry_after_s: int | None = None
        self._inflater: Inflater | None = None
        self._reader: Callable[[bytes], bytes] = self._sniff
        self._body = bytearray()
        self._lines = LineBuffer(max_event_bytes)
        self._parser = EventParser(max_event_bytes)
        self._template: templates.Template | None = None
        self._ordinary: templates.Template | None = None
        self._learnings = 0
        self._created: int | None = None
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._held = b""
        self._fold: Fold | None = None if client_streams else Fold()
        self._folded_bytes = 0
        self._usage_chunk: JsonObject = {}
        self._completion: JsonObject | None = None
        self._plain_body = b""
        self.failure: Failure | None = None
        self.mid_stream_failure: Failure | None = None
        self.sent_any = False
        self.ended = False
        self.complete = False
        self.has_output = False
        self.error_in_stream = False
        self.event_count = 0
        self.skipped_events = 0
        self.finish_reason: str | None = None
        self.vendor_id: str | None = None
        self.vendor_model: str | None = None
        self.raw_usage: JsonObject | None = None

    @property
    def head(self) -> str:
        return EVENT_STREAM if self._client_streams else JSON

    @property
    def error_code(self) -> str | None:
        """The code of what the client was told, wherever in the answer it failed."""
        failure = self.failure or self.mid_stream_failure
        return None if failure is None else failure.error.code

    @property
    def completion(self) -> JsonObject | None:
        """What was produced so far as one chat.completion; None where that is nothing.

        Only for a client that does not stream: what a stream produced is not kept.
        """
        if self._completion is not None:
            return self._completion
        return self._fold.completion() if self._fold is not None and self._seen else None

    def receive_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Take the status line and headers; what the vendor labels its body is not believed."""
        fields = decode_headers(headers)
        self._status = status
        self._retry_after_s = retry_after(fields)
        if status >= _CONTENT_START:
            self._reader = self._receive_error
        encoding = fields.get("content-encoding", "").strip().lower()
        if encoding and encoding != "identity":
            try:
                self._inflater = Inflater(
                    encoding, base_bytes=INFLATE_BASE_BYTES, ratio=INFLATE_RATIO
                )
            except InflateError:
                self._fail(unreadable(status, f"content encoding {encoding[:40]}"))

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the body; return what the client gets now."""
        if self._inflater is not None:
            try:
                data = self._inflater.feed(data)
            except (InflateError, InflatedTooLargeError) as error:
                return self._fail(unreadable(self._status, f"content encoding: {error!r}"))
        ordinary = self._ordinary
        out = b""
        if ordinary is not None and self._lines.is_clean and len(data) <= self._max_event_bytes:
            out, taken, count = ordinary.run(data)
            self.event_count += count
            if taken == len(data):
                return out
            data = data[taken:]
        return out + self._reader(data)

    def receive_end(self) -> bytes:
        """Take the orderly end of the body."""
        out = self._flush()
        if self.ended:
            return out
        if self._status >= _CONTENT_START:
            return self._fail(self._failure_of_body())
        if self._reader == self._receive_body:
            return self._finish_body()
        if self._seen and self._all_finished:
            return out + self._complete()
        return out + self._fail(self._failure_of_cut())

    def receive_fault(self, fault: Fault, *, request_sent: bool = True) -> bytes:
        """Take what broke instead of an end; an answer that was whole already stays good."""
        out = self._flush()
        if self.ended:
            return out
        is_error = self._status >= _CONTENT_START
        if is_error and self._body:
            return self._fail(self._failure_of_body())
        if not is_error and self._reader == self._receive_body:
            out += self._finish_body(or_fail=False)
        elif self._seen and self._all_finished:
            return out + self._complete()
        return out + self._fail(failure_of_fault(fault, request_sent=request_sent))

    def finish_early(self, reason: str = "length") -> bytes:
        """End a stream on our own account, well-formed: the money or the time is used up."""
        out = self._flush()
        if self.ended or self._reader != self._receive_events:
            return out
        still_open = sorted(self._seen - self._finished) or ([] if self._seen else [0])
        choices = [{"index": at, "delta": {}, "finish_reason": reason} for at in still_open]
        chunk = {**self._chunk_head(), "choices": choices}
        self.finish_reason = reason
        if self._fold is not None:
            self._fold.add(chunk)
        elif choices:
            out += self._send(templates.DATA + encode(chunk) + templates.EVENT_END)
        return out + self._complete()

    def closing(self, usage: JsonObject | None = None) -> bytes:
        """Return the client's last bytes after a clean end, else b"".

        For a stream that is the usage chunk, where the client asked, and [DONE]; for a body the
        whole of it. `usage` replaces the vendor's: with a cost, or with an estimate.
        """
        if not self.complete:
            return b""
        if not self._client_streams:
            return self._client_body(usage)
        usage = self.raw_usage if usage is None else usage
        if self._client_wants_usage and usage is not None:
            return self.usage_chunk(usage) + DONE_EVENT
        return DONE_EVENT

    def usage_chunk(self, usage: JsonObject) -> bytes:
        """Return the event that carries usage and nothing else."""
        chunk = {**self._usage_chunk, **self._chunk_head(), "choices": [], "usage": usage}
        return templates.DATA + encode(chunk) + templates.EVENT_END

    # --- what arrives -------------------------------------------------------------------------

    def _sniff(self, data: bytes) -> bytes:
        """Find out from the first byte that is not blank how the answer is to be read."""
        self._body += data
        start = bytes(self._body).lstrip(_BLANKS)
        if _BOM.startswith(start[:3]) and len(start) < len(_BOM):
            self._body = bytearray(start)
            return b""
        start = start.removeprefix(_BOM)
        self._body = bytearray()
        if not start:
            return b""
        is_events = start[:1] in _EVENT_STARTS
        self._reader = self._receive_events if is_events else self._receive_body
        return self._reader(start)

    def _receive_error(self, data: bytes) -> bytes:
        self._body += data[: MAX_ERROR_BODY_BYTES - len(self._body)]
        return b""

    def _receive_body(self, data: bytes) -> bytes:
        if self.ended:
            return b""
        if len(self._body) + len(data) > self._max_body_bytes:
            return self._fail(failure_of_fault(Fault.TOO_LARGE, request_sent=True))
        self._body += data
        return b""

    def _receive_events(self, data: bytes) -> bytes:
        try:
            return self._on_lines(self._lines.push(data))
        except EventTooLargeError:
            return self._fail(failure_of_fault(Fault.TOO_LARGE, request_sent=True))

    def _flush(self) -> bytes:
        """Take what stands at the end without a line end or a blank line."""
        if self._reader != self._receive_events:
            return b""
        out = self._on_lines(self._lines.flush())
        return out + self._on_line(b"")

    # --- events -------------------------------------------------------------------------------

    def _on_lines(self, lines: bytes) -> bytes:
        """Take whole lines: runs of ordinary events as bytes, the others one by one."""
        out: list[bytes] = []
        at = 0
        while at < len(lines):
            if self._ordinary is not None and len(lines) <= self._max_event_bytes:
                run, taken, count = self._ordinary.run(lines[at:] if at else lines)
                if count:
                    self.event_count += count
                    at += taken
                    out.append(run)
                    continue
            end = lines.index(b"\n", at)
            out.append(self._on_line(lines[at:end]))
            self._ordinary = self._template if self._may_pass_ordinary() else None
            at = end + 1
        return b"".join(out)

    def _on_line(self, line: bytes) -> bytes:
        try:
            if self._fold is not None:
                self._folded_bytes += len(line)
                if self._folded_bytes > self._max_body_bytes:
                    raise EventTooLargeError
            return b"".join(map(self._on_event, self._parser.push_line(line)))
        except EventTooLargeError:
            return self._fail(failure_of_fault(Fault.TOO_LARGE, request_sent=True))

    def _may_pass_ordinary(self) -> bool:
        """Say whether an ordinary event could tell us nothing that we do not know already."""
        return (
            self._parser.is_idle
            and self.has_output
            and not self.ended
            and len(self._seen) >= self._n
        )

    def _on_event(self, event: Event) -> bytes:
        value = event.value
        if value is DONE:
            return b"" if self.ended else self._on_done()
        if not isinstance(value, dict):
            self.skipped_events += value is MALFORMED
            return b""
        self.raw_usage = find_usage(value) or self.raw_usage
        said = find_error(value, event.name)
        if said is not None:
            return self._fail(self._failure_said(said))
        choices = value.get("choices")
        if self.ended or not isinstance(choices, list):
            return b""  # after the end only usage counts; the rest are pings and other dialects
        self._note(value, [choice for choice in choices if isinstance(choice, dict)])
        if self._fold is not None:
            self.event_count += 1
            self._fold.add(value)
            return b""
        return self._on_chunk(event.line, value)

    def _on_done(self) -> bytes:
        return self._complete() if self._seen else self._fail(self._failure_of_cut())

    def _on_chunk(self, line: bytes, value: JsonObject) -> bytes:
        if not value["choices"]:  # usage and nothing else, or a preamble
            if value.get("usage") is not None:
                self._usage_chunk = value
                return b""
            if not self._seen:
                return self._hold(self._event_bytes(line, value, self._wanted(value)))
        self.event_count += 1
        wanted = self._wanted(value)
        held, self._held = self._held, b""
        if any(_is_whole(choice) for choice in value["choices"]):
            chunks = [templates.DATA + encode(c) + templates.EVENT_END for c in split(wanted)]
            return self._send(held + b"".join(chunks))
        return self._send(held + self._event_bytes(line, value, wanted))

    def _hold(self, event: bytes) -> bytes:
        """Keep an event that says nothing yet, so that a failure after it is a real HTTP error."""
        if len(self._held) + len(event) > self._max_event_bytes:
            raise EventTooLargeError
        self._held += event
        return b""

    def _send(self, events: bytes) -> bytes:
        self.sent_any = True
        return events

    def _note(self, value: JsonObject, choices: list[JsonObject]) -> None:
        """Remember of a chunk or completion what settling and the record need."""
        self.vendor_id = self.vendor_id or _text(value.get("id"))
        self.vendor_model = self.vendor_model or _text(value.get("model"))
        for choice in choices:
            index = index_of(choice)
            self._seen.add(index)
            self.has_output = self.has_output or has_output(choice)
            reason = _text(choice.get("finish_reason"))
            if reason:
                self._finished.add(index)
                self.finish_reason = reason

    def _wanted(self, value: JsonObject) -> JsonObject:
        """Return the chunk as the client shall see it."""
        wanted = {**value, "id": self._completion_id, "model": self._model, "object": CHUNK}
        if "usage" in wanted and (wanted["usage"] is not None or not self._client_wants_usage):
            del wanted["usage"]
        wanted["choices"] = [_tidied(choice) for choice in value["choices"]]
        return wanted

    def _event_bytes(self, line: bytes, value: JsonObject, wanted: JsonObject) -> bytes:
        """Return a chunk as an event, and learn from it how to do without decoding its like."""
        ordinary = self._as_ordinary(line)
        if not ordinary and line and self._may_learn(value):
            self._learnings += 1
            learned = templates.learn(
                line,
                value,
                wanted,
                drops_usage=not self._client_wants_usage,
                created_varies=self._created not in {None, value.get("created")},
            )
            self._template = learned or self._template
            self._created = _count(value.get("created"))
            ordinary = self._as_ordinary(line)
        return ordinary or templates.DATA + encode(wanted) + templates.EVENT_END

    def _as_ordinary(self, line: bytes) -> bytes:
        if self._template is None or not line:
            return b""
        return self._template.run(line.rstrip() + templates.EVENT_END)[0]

    def _may_learn(self, value: JsonObject) -> bool:
        budget = FREE_LEARNINGS + self.event_count // LEARN_EVERY_EVENTS
        return value.get("usage") is None and self._learnings < budget

    @property
    def _all_finished(self) -> bool:
        return self._seen <= self._finished

    # --- one body -----------------------------------------------------------------------------

    def _finish_body(self, *, or_fail: bool = True) -> bytes:
        text = bytes(self._body).strip(_BLANKS)
        value = _body_value(text)
        failure = self._failure_of_completion(value, text)
        if failure is not None:
            return self._fail(failure) if or_fail else b""
        if any("message" not in choice for choice in value["choices"]):
            folded = Fold()
            folded.add(value)
            value = folded.completion()
        self.raw_usage = find_usage(value)
        self._note(value, value["choices"])
        if not self._client_streams:
            self._completion, self._plain_body = value, text
            return self._complete()
        self._usage_chunk = {}
        chunks = split(self._wanted(value))
        events = [templates.DATA + encode(chunk) + templates.EVENT_END for chunk in chunks]
        self.event_count = len(events)
        return self._send(b"".join(events)) + self._complete()

    def _failure_of_completion(self, value: Any, text: bytes) -> Failure | None:
        if not isinstance(value, dict):
            return unreadable(self._status, _staff_text(text))
        said = find_error(value)
        if said is not None:
            self.raw_usage = find_usage(value)
            return self._failure_said(said)
        choices = value.get("choices")
        is_list = isinstance(choices, list) and choices
        if not is_list or not all(isinstance(choice, dict) for choice in choices):
            self.raw_usage = find_usage(value)
            return unreadable(self._status, "no choices: " + _staff_text(text))
        return None

    def _client_body(self, usage: JsonObject | None) -> bytes:
        """Return the one body a client gets: the vendor's bytes wherever only names differ."""
        value = self._completion
        if value is None:
            value = self._fold.completion() if self._fold is not None else {}
            usage = self.raw_usage if usage is None else usage
        names = {"id": self._completion_id, "model": self._model}
        choices = [_tidied(choice, keep_usage=True) for choice in value["choices"]]
        if usage is None and choices == value["choices"]:
            out = replace_identity(self._plain_body, value, **names)
            if out is not None:
                return out
        wanted = {**value, **names, "choices": choices}
        if usage is not None:
            wanted["usage"] = usage
        return encode(wanted)

    # --- ends ---------------------------------------------------------------------------------

    def _complete(self) -> bytes:
        self.ended = True
        self.complete = True
        return b""

    def _fail(self, failure: Failure) -> bytes:
        """End the attempt; return the error event where the client's stream has begun."""
        if self.ended:
            return b""
        self.ended = True
        if self.sent_any:
            self.mid_stream_failure = replace(failure, error=_mid_stream_error(failure))
            self.error_in_stream = True
            return self.mid_stream_failure.error.event()
        if self.has_output:
            failure = replace(
                failure,
                error=_mid_stream_error(failure),
                may_try_next=False,
                may_have_billed=True,
                rejects_stream_options=False,
            )
        self.failure = failure
        return b""

    def _failure_said(self, said: VendorError) -> Failure:
        return failure_of_status(
            status_of(said), said, retry_after_s=self._retry_after_s, hidden=self._hidden
        )

    def _failure_of_body(self) -> Failure:
        """Return what a body under an error status says."""
        text = bytes(self._body).strip(_BLANKS)
        value = _body_value(text)
        if value is None and text.startswith(b"data:"):
            value = next(read_events(text), None)
        if isinstance(value, dict):
            self.raw_usage = find_usage(value)
            said = read_error(value.get("error") or value)
        else:
            said = VendorError(message=_staff_text(text))
        return failure_of_status(
            self._status, said, retry_after_s=self._retry_after_s, hidden=self._hidden
        )

    def _failure_of_cut(self) -> Failure:
        what = "answer ended early" if self._seen else "empty answer"
        return unreadable(self._status, what)

    def _chunk_head(self) -> JsonObject:
        return {"id": self._completion_id, "object": CHUNK, "created": 0, "model": self._model}


def _tidied(choice: Any, *, keep_usage: bool = False) -> Any:
    """Return a choice with its finish reason as OpenAI writes it, and without usage."""
    if not isinstance(choice, dict):
        return choice
    if choice.get("finish_reason") == "":
        choice = {**choice, "finish_reason": None}
    if "usage" in choice and not keep_usage:
        choice = {name: value for name, value in choice.items() if name != "usage"}
    return choice


def _is_whole(choice: Any) -> bool:
    """Say whether a chunk's choice is one of a completion: some vendors send one in one event."""
    return (
        isinstance(choice, dict)
        and isinstance(choice.get("message"), dict)
        and not isinstance(choice.get("delta"), dict)
    )


def _body_value(text: bytes) -> Any:
    """Decode one body, also one with the end mark of a stream behind it; None where it is none."""
    if text.endswith(b"[DONE]"):
        text = text.removesuffix(b"[DONE]").rstrip().removesuffix(b"data:")
    try:
        return decode(text)
    except ValueError:
        return None


def _mid_stream_error(failure: Failure) -> errors.ApiError:
    if failure.fault in TIMEOUTS:
        return errors.upstream_timeout(may_have_billed=True)
    return errors.upstream_failed_mid_response()


def _staff_text(text: bytes) -> str:
    return text[:MAX_ERROR_BODY_BYTES].decode("utf-8", "replace")


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
