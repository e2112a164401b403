"""Rewrite ordinary events by bytes, without decoding them.

In a stream nearly every event is like the one before it except for its delta. So one event is
decoded, the bytes around its delta are learned, and events that begin (and, where the id or the
model stands behind the choices, end) with exactly these bytes get the new ones. Anything that
could matter sends an event back to be decoded: a finish reason, usage, an error, another model.

This is safe since quotes inside of JSON strings are escaped: `"usage"` with bare quotes can only
be a key or a whole string, never the middle of a text. And it is the same for one event as for
many at once, so how a stream was cut into reads cannot be seen in what comes out.
"""

import re
from typing import Any, NamedTuple

import orjson

from gateway.relay.json_text import encode, replace_identity, string_member

EVENT_START = b"\n\n"
EVENT_END = b"\n\n"
DATA = b"data: "
_MODEL_KEY = b'"model"'
_FINISH_KEY = b'"finish_reason"'
_USAGE_KEY = b'"usage"'
_NULL_FINISH = re.compile(rb'"finish_reason"\s*:\s*null')
_NULL_USAGE = re.compile(rb',\s*"usage"\s*:\s*null')
_DECODED_ALWAYS = (b'"error"', b'"message"', b"NaN", b"Infinity")


class Template(NamedTuple):
    """What is alike in the ordinary events of one stream, with what to put in its place.

    `old_start` and `new_start` include the line end before the event, `old_end` and `new_end`
    that behind it; the ends are only `}` where nothing behind the choices is replaced.
    """

    old_start: bytes
    new_start: bytes
    old_end: bytes
    new_end: bytes
    null_finish: bytes
    null_usage: bytes
    drops_usage: bool

    def rewrite(self, lines: bytes) -> tuple[bytes, int] | None:
        """Rewrite whole lines that hold ordinary events only, and say how many they were.

        None where any of them must be decoded.
        """
        framed = b"".join((EVENT_START, lines.strip(b"\n"), EVENT_END))
        count = framed.count(self.old_start)
        if (
            not count
            or framed.count(b"\n") != 2 * count + 2
            or framed.count(self.old_end) != count
            or framed.count(_MODEL_KEY) != count
            or framed.count(_FINISH_KEY) != framed.count(self.null_finish)
        ):
            return None
        for key in _DECODED_ALWAYS:
            if key in framed:
                return None
        if not framed.isascii() and not _is_utf8(framed):
            return None
        has_usage = _USAGE_KEY in framed
        if has_usage and framed.count(_USAGE_KEY) != framed.count(self.null_usage):
            return None
        out = framed.replace(self.old_start, self.new_start)
        if self.old_end != self.new_end:
            out = out.replace(self.old_end, self.new_end)
        if has_usage and self.drops_usage:
            out = out.replace(self.null_usage, b"")
        return out[2:], count


def learn(
    line: bytes, value: dict[str, Any], wanted: dict[str, Any], *, drops_usage: bool
) -> Template | None:
    """Learn from one data line that decodes to `value` how to make `wanted` of its like.

    None where it does not show beyond doubt, for example where `wanted` differs in more than id,
    model and a null usage.
    """
    brace = line.find(b"{")
    choices = line.find(b'"choices"')
    old = {name: value.get(name) for name in ("id", "model")}
    if brace < 0 or choices < 0 or not all(isinstance(text, str) for text in old.values()):
        return None
    text = line[brace:].rstrip()
    ahead, behind = [], []
    for name, held in old.items():
        spans = [match.span() for match in string_member(name, held).finditer(line)]
        if len(spans) != 1:
            return None
        (ahead if spans[0][0] < choices else behind).append(spans[0])
    start_at = max((end for _start, end in ahead), default=brace + 1)
    end_at = min((start for start, _end in behind), default=brace + len(text) - 1)
    start, end = line[brace:start_at], line[end_at : brace + len(text)]
    template = Template(
        old_start=EVENT_START + line[:start_at],
        new_start=EVENT_START + DATA + _renamed(start, value, wanted),
        old_end=end + EVENT_END,
        new_end=_renamed(end, value, wanted) + EVENT_END,
        null_finish=_spelling(_NULL_FINISH, line, b'"finish_reason":null'),
        null_usage=_spelling(_NULL_USAGE, line, b',"usage":null'),
        drops_usage=drops_usage,
    )
    return template if _is_right(template, line, wanted) else None


def identified(line: bytes, value: dict[str, Any], wanted: dict[str, Any]) -> bytes:
    """Return the event for `wanted`, with the bytes of `line` wherever only names differ."""
    text = line[line.find(b"{") :].rstrip() if line else b""
    names = {"id": wanted["id"], "model": wanted["model"]}
    out = replace_identity(text, value, **names) if {**value, **names} == wanted else None
    return DATA + (encode(wanted) if out is None else out) + EVENT_END


def _renamed(part: bytes, value: dict[str, Any], wanted: dict[str, Any]) -> bytes:
    for name in ("id", "model"):
        new = b'"%s":%s' % (name.encode(), orjson.dumps(wanted[name]))
        part = string_member(name, value[name]).sub(lambda _match, new=new: new, part)
    return part


def _spelling(pattern: re.Pattern[bytes], line: bytes, default: bytes) -> bytes:
    match = pattern.search(line)
    return default if match is None else match[0]


def _is_right(template: Template, line: bytes, wanted: dict[str, Any]) -> bool:
    rewritten = template.rewrite(line + b"\n")
    if rewritten is None:
        return False
    return bool(orjson.loads(rewritten[0][len(DATA) :]) == wanted)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
