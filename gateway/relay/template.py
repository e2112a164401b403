"""Rewrite ordinary events by bytes, without decoding them.

In a stream nearly every event has the shape of the one before it: the same keys in the same
order, and another text in the delta. So one event is decoded, its shape is learned, and events
that begin with the very same bytes and then have the same shape get the new names in place. Only
texts may differ, and not those that tell something (`EXACT_NAMES`): an event with usage, an
error, a finish reason, another model or another choice has another shape, and is decoded.

How a stream was cut into reads cannot be seen in what comes out, since each event is judged
alone.
"""

import re
from collections import deque
from typing import Any, NamedTuple

import orjson

from gateway.relay.json_text import find_member, member

DATA = b"data: "
EVENT_END = b"\n\n"
EXACT_NAMES = frozenset({b"error", b"finish_reason", b"id", b"model", b"object", b"role", b"type"})
"""Keys whose text decides what an event is."""
MAX_LEARNED_BYTES = 4096
"""A longer event is decoded and not learned from, so that no pattern grows large."""
TAILS_KEPT = 8
"""Trying one costs less than decoding an event, making one as much as decoding many."""
KIND_BYTES = 3
"""What tells the members that change apart: id, model, and a comma before usage."""

_PLAIN = rb'[^"\\\x00-\x1f]*'
_ESCAPE = rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_TEXT = rb'"%s(?:%s%s)*"' % (_PLAIN, _ESCAPE, _PLAIN)
_NUMBER = rb"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
_TOKEN = re.compile(rb'(?P<text>"(?:[^"\\]|\\.)*")(?P<colon>\s*:\s*)?|(?P<number>[0-9.]+)|[^"0-9]+')
_NULL_USAGE = re.compile(rb',\s*"usage"\s*:\s*null')


_recent_tails: dict[tuple[bytes, ...], deque[re.Pattern[bytes]]] = {}
"""The patterns that streams of this process needed last; the oldest leave."""


class Template(NamedTuple):
    """The shape of the ordinary events of one stream, with what to put in its place.

    An event begins with `start`, for which `new_start` goes out; `tail` matches what follows up
    to the end of the event. Its groups are the `olds`, and `news` go out for them.
    """

    start: bytes
    new_start: bytes
    tail: re.Pattern[bytes]
    olds: tuple[bytes, ...]
    news: tuple[bytes, ...]

    def run(self, lines: bytes) -> tuple[bytes, int, int]:
        """Rewrite the ordinary events at the beginning of `lines`.

        Returns what goes out, how many bytes were taken, and how many events these were.
        """
        start, new_start, match_tail = self.start, self.new_start, self.tail.match
        length = len(start)
        out: list[bytes] = []
        at = 0
        while lines.startswith(start, at):
            match = match_tail(lines, at + length)
            if match is None:
                break
            end = match.end()
            if self.olds:
                tail = self._renamed(match)
                if tail is None:
                    break
            else:
                tail = lines[at + length : end]
            if not tail.isascii() and not _is_utf8(tail):
                break
            out += (new_start, tail)
            at = end
        return b"".join(out), at, len(out) // 2

    def _renamed(self, match: re.Match[bytes]) -> bytes | None:
        """Return the tail with its groups replaced; None where one is not what was learned."""
        if match.groups() != self.olds:
            return None
        lines, at = match.string, match.start()
        pieces: list[bytes] = []
        for group, new in enumerate(self.news, start=1):
            start, end = match.span(group)
            pieces += (lines[at:start], new)
            at = end
        pieces.append(lines[at : match.end()])
        return b"".join(pieces)


def learn(
    line: bytes,
    value: dict[str, Any],
    wanted: dict[str, Any],
    *,
    drops_usage: bool,
    created_varies: bool,
) -> Template | None:
    """Learn from one data line that decodes to `value` how to make `wanted` of its like.

    `created_varies` lets the time differ, which is slower where it stands ahead of the names.
    None where it does not show beyond doubt, for example where `wanted` differs in more than id,
    model and a null usage.
    """
    choices = line.find(b'"choices"')
    if choices < 0 or len(line) > MAX_LEARNED_BYTES:
        return None
    changes = _changes(line, value, wanted, drops_usage=drops_usage)
    if changes is None:
        return None
    created = line.find(b'"created"') if created_varies else -1
    fixed_until = choices if created < 0 else min(choices, created)
    ahead = [change for change in changes if change[0] < fixed_until]
    behind = [change for change in changes if change[0] > fixed_until]
    cut = ahead[-1][1] if ahead else line.index(b"{") + 1
    olds, news = tuple(line[a:z] for a, z, _new in behind), tuple(new for _a, _z, new in behind)
    template = Template(
        start=line[:cut],
        new_start=DATA + _replaced(line, line.index(b"{"), cut, ahead),
        tail=_tail(line, cut, behind),
        olds=olds,
        news=news,
    )
    return template if _is_right(template, line, wanted) else None


Change = tuple[int, int, bytes]
"""Where something stands, and what to put there."""


def _changes(
    line: bytes, value: dict[str, Any], wanted: dict[str, Any], *, drops_usage: bool
) -> list[Change] | None:
    changes = []
    for name in ("id", "model"):
        span = find_member(line, name, value.get(name))
        if span is None:
            return None
        changes.append((*span, member(name, wanted[name])))
    if drops_usage and "usage" in value:
        spans = [match.span() for match in _NULL_USAGE.finditer(line)]
        if len(spans) != 1:
            return None
        changes.append((*spans[0], b""))
    return sorted(changes)


def _replaced(line: bytes, at: int, end: int, changes: list[Change]) -> bytes:
    pieces = []
    for start, stop, new in changes:
        pieces += [line[at:start], new]
        at = stop
    return b"".join((*pieces, line[at:end]))


def _tail(line: bytes, at: int, behind: list[Change]) -> re.Pattern[bytes]:
    """Return the pattern for the line from `at` on, if possible one that another stream needed.

    A pattern that matches is the one that would be made: all but texts is in it byte by byte.
    """
    kinds = tuple(line[start : start + KIND_BYTES] for start, _stop, _new in behind)
    recent = _recent_tails.setdefault(kinds, deque(maxlen=TAILS_KEPT))
    text = line.rstrip() + EVENT_END
    for tail in recent:
        if tail.fullmatch(text, at):
            return tail
    tail = re.compile(_pattern(line, at, behind))
    recent.appendleft(tail)
    return tail


def _pattern(line: bytes, at: int, behind: list[Change]) -> bytes:
    """Return the pattern of the line from `at` on: its bytes, but any text where one may differ."""
    pieces = []
    for start, stop, _new in behind:
        # Names differ from stream to stream: a group for any text lets streams share a pattern.
        name = _shape(line[start:stop], exact=frozenset())
        pieces += [_shape(line[at:start]), b"(%s)" % name]
        at = stop
    return b"".join((*pieces, _shape(line[at:].rstrip()), EVENT_END))


def _shape(part: bytes, exact: frozenset[bytes] = EXACT_NAMES) -> bytes:
    pieces = []
    key = b""
    for token in _TOKEN.finditer(part):
        text = token["text"]
        if text is not None and token["colon"] is not None:
            key = text[1:-1]
        if text is not None and token["colon"] is None and key not in exact:
            pieces.append(_TEXT)
        elif token["number"] is not None and key == b"created":
            pieces.append(_NUMBER)
        else:
            pieces.append(re.escape(token[0]))
    return b"".join(pieces)


def _is_right(template: Template, line: bytes, wanted: dict[str, Any]) -> bool:
    out, _taken, count = template.run(line.rstrip() + EVENT_END)
    try:
        return count == 1 and bool(orjson.loads(out[len(DATA) :]) == wanted)
    except orjson.JSONDecodeError:
        return False


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
