"""Take secrets out of a stored stream whose events split them: `sk-abc` in one, `def…` in the next.

A stream says the same envelope a thousand times, so only what can hold a secret is looked at: its
head, its end, and the texts of its events put together. Where one is found there, the stream is
rewritten.
"""

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

from gateway.exchanges.masking import DOTS, mask_body, secret_spans
from gateway.relay.assemble import fold
from gateway.relay.json_text import decode, encode
from gateway.relay.sse import read_events

EDGE_BYTES = 1_024
"""Of the head and of the end: where a vendor puts what is no delta, such as an error."""
SECOND_CHOICE = re.compile(rb'"index":\s*1\b')
TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
TEXTS = re.compile(rb'"(?:%s|arguments)":\s*"((?:[^"\\]|\\.)*+)"' % "|".join(TEXT_FIELDS).encode())
"""Each text of a delta, as JSON has it."""

Path = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class _Fragment:
    """A text in an event, which is `holder[name]`, and where it stands in its whole text."""

    line: int
    holder: dict[str, Any]
    name: str
    start: int
    data: bytes


def mask_stream(stream: bytes) -> bytes:
    """Return the events without secrets: `stream` itself where it has none.

    Where a secret is split in a way that the events cannot be mended, one assembled
    `chat.completion` stands for them.
    """
    if not _may_hold_secrets(stream):
        return stream
    masked = mask_body(_without_split_secrets(stream))
    assembled = encode(fold(read_events(masked)))
    return mask_body(assembled) if secret_spans(assembled) else masked


def _may_hold_secrets(stream: bytes) -> bool:
    edges = stream if len(stream) <= 2 * EDGE_BYTES else _edges(stream)
    if secret_spans(edges) or secret_spans(b"".join(TEXTS.findall(stream))):
        return True
    # Texts of several choices interleave: only put together properly do they say what they say.
    is_interleaved = SECOND_CHOICE.search(stream) is not None
    return is_interleaved and bool(secret_spans(encode(fold(read_events(stream)))))


def _edges(stream: bytes) -> bytes:
    return stream[:EDGE_BYTES] + b"\n" + stream[-EDGE_BYTES:]


def _without_split_secrets(stream: bytes) -> bytes:
    lines = stream.split(b"\n")
    texts: dict[Path, list[_Fragment]] = {}
    events: dict[int, Any] = {}
    for number, line in enumerate(lines):
        event = _event(line)
        if event is not None:
            events[number] = event
            _collect(number, event, texts)
    for fragments in texts.values():
        for number in _mask_fragments(fragments):
            lines[number] = b"data: " + encode(events[number])
    return b"\n".join(lines)


def _event(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"data:"):
        return None
    try:
        event = decode(line[5:])
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _collect(line: int, event: dict[str, Any], texts: dict[Path, list[_Fragment]]) -> None:
    for choice in _objects(event.get("choices")):
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            continue
        index = str(choice.get("index"))
        for name in TEXT_FIELDS:
            _add(line, delta, name, texts.setdefault((index, name), []))
        for call in _objects(delta.get("tool_calls")):
            function = call.get("function")
            if isinstance(function, dict):
                path = (index, "call", str(call.get("index")))
                _add(line, function, "arguments", texts.setdefault(path, []))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _add(line: int, holder: dict[str, Any], name: str, fragments: list[_Fragment]) -> None:
    text = holder.get(name)
    if isinstance(text, str) and text:
        start = fragments[-1].start + len(fragments[-1].data) if fragments else 0
        fragments.append(
            _Fragment(line, holder, name, start, text.encode("utf-8", "surrogatepass"))
        )


def _mask_fragments(fragments: list[_Fragment]) -> set[int]:
    """Mask the text that the fragments add up to, in their events; return the lines changed."""
    spans = secret_spans(b"".join(fragment.data for fragment in fragments))
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    changed = set()
    for fragment in fragments:
        first = bisect_right(ends, fragment.start)
        last = bisect_left(starts, fragment.start + len(fragment.data))
        touching = spans[first:last]
        if touching:
            fragment.holder[fragment.name] = _cut(fragment, touching)
            changed.add(fragment.line)
    return changed


def _cut(fragment: _Fragment, spans: list[tuple[int, int]]) -> str:
    """Leave the spans out; a secret's dots stand where it begins."""
    kept = bytearray()
    at = fragment.start
    for start, end in spans:
        if start >= fragment.start:
            kept += fragment.data[at - fragment.start : start - fragment.start] + DOTS.encode()
        at = end
    kept += fragment.data[max(at - fragment.start, 0) :]
    return kept.decode("utf-8", "surrogatepass")
