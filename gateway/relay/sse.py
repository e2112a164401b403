"""Server-sent events as vendors write them, read piece by piece.

Lines end in LF, CRLF or CR, cut anywhere. A data line that is a whole JSON object is an event as
soon as its line ends, since nothing that follows could make valid JSON of it: so a vendor that
leaves out the blank line between events is read like any other, and no event waits for a blank
line that may never come. So are objects one behind the other on one line, or in one list.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from gateway.relay.json_text import MAX_RUN, decode, decode_run, objects_of, unwrapped

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Of one event, and so of what is held back while one arrives. Images come in one event."""
LINE_OVERHEAD_BYTES = 16
"""What a held line costs beside its text, so that empty lines are bounded as well."""


class EventTooLargeError(ValueError):
    """An event is larger than the limit."""


class _Marker:
    """A value of an event that is no JSON value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


DONE: Final = _Marker("DONE")
MALFORMED: Final = _Marker("MALFORMED")
DONE_TEXT = b"[DONE]"
MAX_STRAY_BYTES = 500
"""Of the first line that belongs to no event: what was said instead of an answer."""

_BOM = b"\xef\xbb\xbf"
_NOISE = b"\x00\x1e" + _BOM
"""What may stand before a line and is none of it."""
_QUOTES = b"\"'"
_FIELDS = frozenset({b"", b"data", b"event", b"id", b"retry"})  # b"" is a comment's
_ENDS = frozenset({b"done", b"end"})


class Event(NamedTuple):
    """One event: its line as received (b"" where it had several), the decoded value, its name.

    Of a malformed one the line is its text.
    """

    line: bytes
    value: Any
    name: bytes = b""


class LineBuffer:
    """Cuts a byte stream into whole lines that end in LF, whatever they ended in before."""

    __slots__ = ("_limit_bytes", "_pending", "_skip_line_feed")

    def __init__(self, limit_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._pending = bytearray()
        self._skip_line_feed = False

    @property
    def is_clean(self) -> bool:
        """Say whether the next byte begins a line, whatever came before it."""
        return not self._pending and not self._skip_line_feed

    def push(self, data: bytes) -> bytes:
        """Return the lines that are now whole; raise `EventTooLargeError` on one too long."""
        if self._skip_line_feed and data:
            self._skip_line_feed = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._skip_line_feed = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not self._pending and data.endswith(b"\n"):
            return data
        return self._join(data)

    def flush(self) -> bytes:
        """Return what stands after the last line end, as a line."""
        rest = bytes(self._pending)
        self._pending = bytearray()
        return rest + b"\n" if rest else b""

    def _join(self, data: bytes) -> bytes:
        cut = data.rfind(b"\n") + 1
        if not cut:
            self._pending += data
            self._check()
            return b""
        lines = bytes(self._pending) + data[:cut] if self._pending else data[:cut]
        self._pending = bytearray(data[cut:])
        return lines

    def _check(self) -> None:
        if len(self._pending) > self._limit_bytes:
            raise EventTooLargeError


class EventParser:
    """Turns lines into events.

    `is_idle` is True between events; `stray` is the first line that belongs to none.
    """

    __slots__ = ("_held", "_held_bytes", "_limit_bytes", "_most", "_name", "is_idle", "stray")

    def __init__(self, limit_bytes: int = MAX_EVENT_BYTES, most_objects: int = MAX_RUN) -> None:
        self._limit_bytes = limit_bytes
        self._most = most_objects
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._name = b""
        self.is_idle = True
        self.stray = b""

    def push_line(self, line: bytes) -> list[Event]:
        """Take one line without its end; return the events that it completes."""
        if not line:
            return self.finish()
        if len(line) > self._limit_bytes:
            raise EventTooLargeError
        field, _colon, text = line.partition(b":")
        field = field.strip().lower()
        if line.startswith((b"{", b"[")):
            return self._data(line, line)  # an error written into a stream, or lines without fields
        if field == b"data":
            return self._data(line, text.strip())
        if field == b"event":
            self._name = text.strip()
            self.is_idle = False
        elif field not in _FIELDS:
            return self._unknown(line)
        return []

    def finish(self) -> list[Event]:
        """Take a blank line, or the end of the stream."""
        events = self._flush()
        if self._name.lower() in _ENDS:
            events = [event for event in events if event.value is not MALFORMED]
            events.append(Event(b"", DONE))
        self._name = b""
        self.is_idle = True
        return events

    def _data(self, line: bytes, text: bytes) -> list[Event]:
        if is_end_mark(text):
            return [*self._flush(), Event(line, DONE)]
        if not self._held:
            if text.startswith(b"{") and text.endswith(b"}"):
                value = _value(text)
                if value is not MALFORMED:
                    return [Event(line, value, self._name)]
            values, rest = self._run(text)
            if values and not rest:
                return [Event(b"", value, self._name) for value in values]
        self._hold(text)
        return []

    def _unknown(self, line: bytes) -> list[Event]:
        """Take a line without a field: more of an object that began, or no part of any event."""
        bare = line.lstrip(_NOISE)
        if bare != line:
            return self.push_line(bare)
        if self._held:
            self._hold(line)
        else:
            self.stray = self.stray or line[:MAX_STRAY_BYTES]
        return []

    def _hold(self, text: bytes) -> None:
        self._held_bytes += len(text) + LINE_OVERHEAD_BYTES
        if self._held_bytes > self._limit_bytes + LINE_OVERHEAD_BYTES:
            raise EventTooLargeError
        self._held.append(text)
        self.is_idle = False

    def _flush(self) -> list[Event]:
        held, self._held, self._held_bytes = self._held, [], 0
        if not held:
            return []
        text = b"\n".join(held)
        value = unwrapped(_value(text))
        if value is not MALFORMED:
            values = self._bounded(objects_of(value) or [value])
            return [Event(b"", value, self._name) for value in values]
        values, rest = self._run(text)
        if rest and len(held) > 1:  # a line that is no JSON hides none of the others
            values = max(values, [value for line in held for value in self._run(line)[0]], key=len)
        events = [Event(b"", value, self._name) for value in values]
        return [*events, Event(rest, MALFORMED, self._name)] if rest or not events else events

    def _run(self, text: bytes) -> tuple[list[Any], bytes]:
        """Return the objects of a text, and the end mark behind them, and what is neither."""
        values, rest = decode_run(text, self._most)
        self._bounded(values)
        return ([*values, DONE], b"") if is_end_mark(rest) else (values, rest)

    def _bounded(self, values: list[Any]) -> list[Any]:
        if len(values) > self._most:
            raise EventTooLargeError
        return values


def is_end_mark(text: bytes) -> bool:
    """Say whether a data line says that the stream is over, in quotes or in lower case too."""
    return len(text) <= len(DONE_TEXT) + 2 and text.strip(_QUOTES).upper() == DONE_TEXT


def read_events(stream: bytes) -> Iterator[Any]:
    """Yield the JSON values of a whole recorded stream; what is no JSON is left out.

    It was bounded when it was recorded, so here no event is too large, and none has too much in it.
    """
    lines = LineBuffer(len(stream))
    parser = EventParser(len(stream) * (1 + LINE_OVERHEAD_BYTES), most_objects=len(stream))
    text = lines.push(stream.removeprefix(_BOM)) + lines.flush()
    for line in (*text.split(b"\n"), b""):
        for event in parser.push_line(line):
            if not isinstance(event.value, _Marker):
                yield event.value


def _value(text: bytes) -> Any:
    try:
        return decode(text)
    except ValueError:
        return MALFORMED
