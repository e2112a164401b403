"""What a vendor answered, as values that a check can judge."""

from dataclasses import dataclass, field
from typing import Any

from billing.usage import find_usage
from gateway.relay.assemble import fold, has_output
from gateway.relay.json_text import decode
from gateway.relay.sse import DONE, EventParser, EventTooLargeError, LineBuffer

MS_PER_S = 1_000

JsonObject = dict[str, Any]


class CannotProbeError(Exception):
    """Nothing was learnt: the vendor is away, busy or refuses us, or a bound is reached."""


class BrokenAnswerError(Exception):
    """The vendor took the request, and its answer broke off or was no HTTP."""


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer of one body; `value` is its text where it is no JSON."""

    status: int
    value: Any

    @property
    def completion(self) -> JsonObject | None:
        """The value, where it is shaped as a completion with a choice."""
        choices = self.value.get("choices") if isinstance(self.value, dict) else None
        is_one = isinstance(choices, list) and choices and isinstance(choices[0], dict)
        return self.value if is_one else None


def whole(status: int, body: bytes) -> Whole:
    try:
        return Whole(status, decode(body))
    except ValueError:
        return Whole(status, body.decode("utf-8", "replace"))


@dataclass(slots=True)
class Streamed:
    """An answer as events, filled in as it comes. `is_one_body`: JSON, and no events at all.

    `values` are decoded where they are JSON, and else a word for what they are.
    """

    status: int
    content_type: str
    values: list[Any] = field(default_factory=list)
    is_done: bool = False
    is_one_body: bool = False
    first_token_ms: int | None = None

    @property
    def chunks(self) -> list[JsonObject]:
        return [value for value in self.values if isinstance(value, dict)]

    @property
    def completion(self) -> JsonObject:
        return fold(self.chunks)

    @property
    def usage(self) -> JsonObject | None:
        """The last one sent."""
        found = [usage for usage in map(find_usage, self.chunks) if usage]
        return found[-1] if found else None

    @property
    def pieces(self) -> int:
        """How many chunks carried a part of the answer."""
        return sum(map(_carries_output, self.chunks))


class StreamReader:
    """Fills in a `Streamed` from bytes; `now_s` are seconds of any clock."""

    def __init__(self, streamed: Streamed, started_s: float) -> None:
        self._streamed = streamed
        self._started_s = started_s
        self._lines = LineBuffer()
        self._parser = EventParser()
        self._has_begun = False

    def push(self, data: bytes, now_s: float) -> None:
        """Raises BrokenAnswerError for an event that is beyond all bounds."""
        if not self._has_begun and data.strip():
            self._has_begun = True
            self._streamed.is_one_body = data.lstrip().startswith(b"{")
        try:
            self._take(self._lines.push(data), now_s)
        except EventTooLargeError:
            raise BrokenAnswerError("an event of the stream has no end") from None

    def finish(self, now_s: float) -> None:
        self._take(self._lines.flush() + b"\n", now_s)

    def _take(self, lines: bytes, now_s: float) -> None:
        if not lines:
            return
        for line in lines.removesuffix(b"\n").split(b"\n"):
            for event in self._parser.push_line(line):
                self._note(event.value, now_s)

    def _note(self, value: Any, now_s: float) -> None:
        streamed = self._streamed
        if value is DONE:
            streamed.is_done = True
        else:
            streamed.values.append(value if isinstance(value, dict) else str(value))
        if streamed.first_token_ms is None and isinstance(value, dict) and _carries_output(value):
            streamed.first_token_ms = round((now_s - self._started_s) * MS_PER_S)


def _carries_output(chunk: JsonObject) -> bool:
    choices = chunk.get("choices")
    entries = choices if isinstance(choices, list) else []
    return any(has_output(entry) for entry in entries if isinstance(entry, dict))
