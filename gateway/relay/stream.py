"""The events of one vendor stream: read, noted, and turned into the client's events."""

from dataclasses import dataclass, field
from typing import Any, Final

from billing.storable import storable
from billing.usage import find_usage, latest_usage
from gateway.relay import template as templates
from gateway.relay.assemble import CHUNK, Fold, has_output, index_of, is_whole, mended, split
from gateway.relay.calls import CallNumbers
from gateway.relay.failures import Fault, VendorError, find_error, read_error
from gateway.relay.json_text import encode
from gateway.relay.sse import (
    DONE,
    MALFORMED,
    MAX_STRAY_BYTES,
    Event,
    EventParser,
    EventTooLargeError,
    LineBuffer,
)

LEARN_EVERY_EVENTS = 32
"""Learning costs about as much as decoding this many events, so it must not happen more often."""
FREE_LEARNINGS = 4
LEARN_AFTER_EVENTS = 2
MAX_NAME_CHARS = 256
"""Of a vendor's id, model and finish reason, as they are noted; what passes is not cut."""

JsonObject = dict[str, Any]

Outcome = VendorError | Fault | str
"""How a stream ended by itself: an error event, too large an event, or FINISHED."""
FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the client asked for, and under which names it gets it."""

    completion_id: str
    model: str
    wants_usage: bool
    n: int


@dataclass(slots=True)
class Facts:
    """What settling and the record need to know of an answer, as far as it has come."""

    has_output: bool = False
    has_deltas: bool = False
    finish_reason: str | None = None
    vendor_id: str | None = None
    vendor_model: str | None = None
    raw_usage: JsonObject | None = None
    created: int | None = None
    seen: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)

    def note_usage(self, value: JsonObject) -> None:
        """The last usage wins: some vendors send it with every chunk, growing."""
        usage = find_usage(value)
        if usage is not None:
            self.raw_usage = latest_usage(self.raw_usage, usage)

    def note(self, value: JsonObject) -> None:
        """Take note of a chunk or completion."""
        self.vendor_id = self.vendor_id or _name(value.get("id"))
        self.vendor_model = self.vendor_model or _name(value.get("model"))
        created = value.get("created")
        if self.created is None and type(created) is int and created:
            self.created = created
        for choice in value["choices"]:
            if isinstance(choice, dict):
                self._note_choice(choice)

    @property
    def is_finished(self) -> bool:
        """Say whether there is an answer, and each of its choices has a finish reason."""
        return bool(self.seen) and self.seen <= self.finished

    def _note_choice(self, choice: JsonObject) -> None:
        index = index_of(choice)
        self.seen.add(index)
        if has_output(choice):
            self.has_output = True
            self.has_deltas = self.has_deltas or bool(choice.get("delta"))
        reason = _name(choice.get("finish_reason"))
        if reason:
            self.finished.add(index)
            self.finish_reason = reason


class EventStream:
    """A vendor's events on their way to the client, or into `fold` where it wants one body.

    `outcome` is set by what the stream itself says; after it only usage is still read. `stray` is
    the first of what was no event.
    `usage_chunk` is the vendor's chunk that had nothing but usage: it is held back, to be sent
    once, at the end.
    """

    __slots__ = (
        "_calls",
        "_created",
        "_facts",
        "_fold",
        "_folded_bytes",
        "_held",
        "_learnings",
        "_lines",
        "_max_event_bytes",
        "_max_folded_bytes",
        "_ordinary",
        "_parser",
        "_template",
        "_wish",
        "event_count",
        "outcome",
        "sent_any",
        "skipped_events",
        "stray",
        "usage_chunk",
    )

    def __init__(
        self,
        wish: Wish,
        facts: Facts,
        fold: Fold | None,
        *,
        max_event_bytes: int,
        max_folded_bytes: int,
    ) -> None:
        self._wish = wish
        self._facts = facts
        self._fold = fold
        self._max_event_bytes = max_event_bytes
        self._max_folded_bytes = max_folded_bytes
        self._folded_bytes = 0
        self._lines = LineBuffer(max_event_bytes)
        self._parser = EventParser(max_event_bytes)
        self._template: templates.Template | None = None
        self._ordinary: templates.Template | None = None
        self._calls: dict[int, CallNumbers] = {}
        self._learnings = 0
        self._created: Any = None
        self._held = b""
        self.usage_chunk: JsonObject = {}
        self.outcome: Outcome | None = None
        self.sent_any = False
        self.event_count = 0
        self.skipped_events = 0
        self.stray = b""

    def push(self, data: bytes) -> bytes:
        """Take bytes as they were read; return what the client gets."""
        ordinary = self._ordinary
        if ordinary is None or not self._lines.is_clean or len(data) > self._max_event_bytes:
            return self._push(data)
        out, taken, count = ordinary.run(data)
        self.event_count += count
        return out if taken == len(data) else out + self._push(data[taken:])

    def flush(self) -> bytes:
        """Take what stands at the end without a line end or a blank line."""
        return self._on_lines(self._lines.flush()) + self._on_line(b"")

    def finish_choices(self, reason: str) -> bytes:
        """Give every choice that is still open a finish reason of ours."""
        facts = self._facts
        still_open = sorted(facts.seen - facts.finished) or ([] if facts.seen else [0])
        facts.finish_reason = reason
        choices = [{"index": at, "delta": {}, "finish_reason": reason} for at in still_open]
        chunk = {**self.chunk_head(), "choices": choices}
        if self._fold is not None:
            self._fold.add(chunk)
        elif choices:
            return self._send(event_of(chunk))
        return b""

    def stop(self) -> None:
        """Let nothing more through; usage is still noted."""
        self._end(FINISHED)
        self._ordinary = None

    def chunk_head(self) -> JsonObject:
        wish = self._wish
        created = self._facts.created or 0
        return {
            "id": wish.completion_id,
            "object": CHUNK,
            "created": created,
            "model": wish.model,
        }

    def _push(self, data: bytes) -> bytes:
        try:
            lines = self._lines.push(data)
        except EventTooLargeError:
            self._end(Fault.TOO_LARGE)
            return b""
        return self._on_lines(lines) if lines else b""

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

    def _may_pass_ordinary(self) -> bool:
        """Say whether an ordinary event could tell us nothing that we do not know already."""
        return (
            self._parser.is_idle
            and self._facts.has_output
            and self.outcome is None
            and len(self._facts.seen) >= self._wish.n
        )

    def _on_line(self, line: bytes) -> bytes:
        try:
            events = self._parser.push_line(line)
        except EventTooLargeError:
            self._end(Fault.TOO_LARGE)
            return b""
        self._note_stray(self._parser.stray)
        return b"".join(map(self._on_event, events)) if events else b""

    def _on_event(self, event: Event) -> bytes:
        value = event.value
        if value is DONE:
            self._end(FINISHED)
        elif value is MALFORMED:
            self.skipped_events += 1
            self._note_stray(event.line[:MAX_STRAY_BYTES])
            if event.name == b"error":
                self._end(read_error(event.line.decode("utf-8", "replace")))
        elif isinstance(value, dict):
            chunk = mended(value)
            return self._on_object(event.line if chunk is value else b"", chunk, event.name)
        return b""

    def _on_object(self, line: bytes, value: JsonObject, name: bytes) -> bytes:
        self._facts.note_usage(value)
        said = find_error(value, name)
        if said is not None:
            self._end(said)
        # What has no choices is a ping, or an event of another dialect.
        elif self.outcome is None and isinstance(value.get("choices"), list):
            self._facts.note(value)
            return self._on_chunk(line, value)
        return b""

    def _note_stray(self, line: bytes) -> None:
        if self.outcome is None:
            self.stray = self.stray or line

    def _end(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome

    def _on_chunk(self, line: bytes, value: JsonObject) -> bytes:
        if not value["choices"] and value.get("usage") is not None:
            self.usage_chunk = {name: held for name, held in value.items() if name != "usage"}
            return b""
        if self._fold is not None:
            return self._into_fold(self._fold, line, value)
        out = self._client_events(line, value)
        if self._facts.seen:
            self.event_count += 1
            held, self._held = self._held, b""
            return self._send(held + out)
        # A preamble says nothing yet: held back, so that a failure after it is an HTTP error.
        self._held += out
        if len(self._held) > self._max_event_bytes:
            self._end(Fault.TOO_LARGE)
        return b""

    def _into_fold(self, fold: Fold, line: bytes, value: JsonObject) -> bytes:
        self.event_count += 1
        self._folded_bytes += len(line or encode(value))
        if self._folded_bytes > self._max_folded_bytes:
            self._end(Fault.TOO_LARGE)
        fold.add(value)
        return b""

    def _send(self, events: bytes) -> bytes:
        self.sent_any = True
        return events

    def _client_events(self, line: bytes, value: JsonObject) -> bytes:
        """Return a chunk as the client shall see it, and learn how to do without decoding."""
        ordinary = self._as_ordinary(line)
        if ordinary:
            return ordinary
        wanted = client_chunk(value, self._wish)
        if any(map(is_whole, value["choices"])):
            if not self._facts.has_deltas:
                return b"".join(map(event_of, split(wanted)))
            choices = [_without_message(choice) for choice in wanted["choices"]]
            return event_of({**wanted, "choices": choices})
        numbered = self._with_numbers(wanted)
        if numbered is not wanted:
            self._template = None  # it knows the vendor's numbers
            return event_of(numbered)
        if line and self._may_learn(value):
            self._learn(line, value, wanted)
        return self._as_ordinary(line) or event_of(wanted)

    def _with_numbers(self, wanted: JsonObject) -> JsonObject:
        """Return the chunk with an index at each piece of a call: itself where all are right."""
        for choice in wanted["choices"]:
            if "tool_calls" in choice["delta"]:
                break
        else:
            return wanted
        choices = [
            self._calls.setdefault(index_of(choice), CallNumbers()).numbered(choice)
            for choice in wanted["choices"]
        ]
        is_right = all(new is old for new, old in zip(choices, wanted["choices"], strict=True))
        return wanted if is_right else {**wanted, "choices": choices}

    def _as_ordinary(self, line: bytes) -> bytes:
        if self._template is None or not line:
            return b""
        return self._template.run(line.rstrip() + templates.EVENT_END)[0]

    def _may_learn(self, value: JsonObject) -> bool:
        """Say whether more events like this one are to be expected, and learning is not overdone.

        The first events of a stream are unlike the others, and a short one is over before
        learning pays.
        """
        budget = FREE_LEARNINGS + self.event_count // LEARN_EVERY_EVENTS
        return (
            self.event_count >= LEARN_AFTER_EVENTS
            and self._learnings < budget
            and value.get("usage") is None
            and all(map(_goes_on, value["choices"]))
        )

    def _learn(self, line: bytes, value: JsonObject, wanted: JsonObject) -> None:
        self._learnings += 1
        created = value.get("created")
        learned = templates.learn(
            line,
            value,
            wanted,
            drops_usage=not self._wish.wants_usage,
            created_varies=self._created not in (None, created),
        )
        self._template = learned or self._template
        self._created = created


def event_of(chunk: JsonObject) -> bytes:
    return templates.DATA + encode(chunk) + templates.EVENT_END


def client_chunk(value: JsonObject, wish: Wish) -> JsonObject:
    """Return a chunk under the client's names, and without usage: that is sent once, at the end."""
    wanted = {**value, "id": wish.completion_id, "model": wish.model, "object": CHUNK}
    if wanted.get("usage") is not None or not wish.wants_usage:
        wanted = _without_usage(wanted)
    choices = [choice for choice in value["choices"] if isinstance(choice, dict)]
    wanted["choices"] = [_client_choice(choice) for choice in choices]
    return wanted


def _client_choice(choice: JsonObject) -> JsonObject:
    """Return a choice of a chunk with what every client looks for: an index and a delta."""
    choice = tidied(choice, keep_usage=False)
    if type(choice.get("index")) is not int:
        choice = {**choice, "index": 0}
    if not isinstance(choice.get("delta"), dict) and not is_whole(choice):
        text = choice.get("text")
        choice = {**choice, "delta": {"content": text} if isinstance(text, str) else {}}
    return choice


def tidied(choice: JsonObject, *, keep_usage: bool) -> JsonObject:
    """Return a choice with its finish reason as OpenAI writes it, and without usage inside."""
    if choice.get("finish_reason") == "":
        choice = {**choice, "finish_reason": None}
    if not keep_usage:
        choice = _without_usage(choice)
        delta = choice.get("delta")
        if isinstance(delta, dict) and "usage" in delta:
            choice = {**choice, "delta": _without_usage(delta)}
    return choice


def _without_usage(holder: JsonObject) -> JsonObject:
    if "usage" not in holder:
        return holder
    return {name: value for name, value in holder.items() if name != "usage"}


def _without_message(choice: JsonObject) -> JsonObject:
    """Return a choice of a stream's last chunk without the text that came in deltas before."""
    if not is_whole(choice):
        return choice
    return {**{name: held for name, held in choice.items() if name != "message"}, "delta": {}}


def _goes_on(choice: Any) -> bool:
    return isinstance(choice, dict) and has_output(choice) and not choice.get("finish_reason")


def _name(value: Any) -> str | None:
    return storable(value[:MAX_NAME_CHARS]) or None if isinstance(value, str) else None
