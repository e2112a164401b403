"""JSON as vendors write it: strict where it can be, forgiving where they are known to be wrong."""

import json
import math
import re
from typing import Any

import orjson

MAX_DEPTH = 200
"""Levels of nesting in a vendor's JSON: what walks, compares or writes it may recurse so far."""

MAX_INTEGER_DIGITS = 1_000
"""Of an integer that is kept; Python refuses to read or write one much longer."""

MAX_RUN = 100_000
"""Objects on one line or in one list; to read so many takes half a second of everybody's time."""

_COLONS = (b":", b": ")
_BETWEEN = re.compile(r"(?:[\s,;]|\\[nr]|data:)*", re.IGNORECASE)
_NULL_FOR_CONSTANT = {"NaN": None, "Infinity": None, "-Infinity": None}


def decode(text: bytes) -> Any:
    """Decode a vendor's JSON; raise ValueError where it is none, or nested too deeply.

    NaN, the infinities and numbers beyond a double become None, which is legal JSON; an integer
    beyond 64 bits becomes a double, unless the text is read for its other faults. Half a
    surrogate pair, which some vendors split over two events, is kept as it is; a byte that is no
    UTF-8 becomes U+FFFD, and control characters may stand in texts.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _decode_forgiving(text)
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and is_deeper_than(MAX_DEPTH, value):
        raise ValueError("nested too deeply")
    return value


def decode_run(text: bytes, most: int = MAX_RUN) -> tuple[list[Any], bytes]:
    """Decode objects one behind the other; return them, and the rest from where one is none.

    Where there are more than `most`, what is returned is more than that, and not all of them.

    A list of objects is so many of them. Between them may stand what vendors are known to put
    there: blanks, commas, line ends that were escaped, and the name of an event's field.
    """
    characters = text.decode("utf-8", "replace")
    found: list[Any] = []
    at = _next(characters, 0)
    while at < len(characters) and len(found) <= most:
        try:
            value, end = _FORGIVING.raw_decode(characters, at)
        except (ValueError, RecursionError):
            break
        objects = objects_of(value)
        if not objects or is_deeper_than(MAX_DEPTH, value):
            break
        found += objects
        at = _next(characters, end)
    return found, characters[at:].encode()


def objects_of(value: Any) -> list[dict[str, Any]]:
    """Return the object, or the objects of a list that has nothing else."""
    if isinstance(value, dict):
        return [value]
    is_list = isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
    return value if is_list else []


def unwrapped(value: Any) -> Any:
    """Return what a text says that is a JSON object itself: some vendors encode twice."""
    if not isinstance(value, str) or not value.lstrip().startswith("{"):
        return value
    try:
        return decode(value.encode("utf-8", "replace"))
    except ValueError:
        return value


def is_deeper_than(levels: int, value: Any) -> bool:
    """Say whether objects and lists stand in each other more than so many levels deep."""
    level: list[Any] = [value] if _is_container(value) else []
    for _ in range(levels):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if _is_container(child)
        ]
        if not level:
            return False
    return True


def _is_container(value: Any) -> bool:
    return type(value) is dict or type(value) is list


def encode(value: Any) -> bytes:
    """Encode as legal JSON whatever `decode` returned."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # Half surrogates and integers above 64 bits: escaped, respectively in full.
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def replace_identity(text: bytes, value: dict[str, Any], **changes: str) -> bytes | None:
    """Return `text`, which decodes to `value`, with top-level strings replaced in place.

    None where the bytes do not show beyond doubt which ones to replace. Everything else keeps
    its bytes: spelling of numbers, escapes, order, white space.
    """
    out = text
    for name, new in changes.items():
        span = find_member(out, name, value.get(name))
        if span is None:
            return None
        out = b"".join((out[: span[0]], member(name, new), out[span[1] :]))
    try:
        is_same = orjson.loads(out) == {**value, **changes}
    except orjson.JSONDecodeError:
        return None
    return out if is_same else None


def member(name: str, value: str) -> bytes:
    return b'"%s":%s' % (name.encode(), encode(value))


def find_member(text: bytes, name: str, value: Any) -> tuple[int, int] | None:
    """Return where the only member `name` with this text as its value begins and ends.

    None where there is no such member, or more than one, or in an unusual spelling. Quotes inside
    of JSON strings are escaped, so that nothing is found in the middle of a text.
    """
    if not isinstance(value, str):
        return None
    found = None
    for colon in _COLONS:
        token = b'"%s"%s%s' % (name.encode(), colon, encode(value))
        start = text.find(token)
        if start < 0:
            continue
        if found is not None or text.find(token, start + 1) >= 0:
            return None
        found = (start, start + len(token))
    return found


def _decode_forgiving(text: bytes) -> Any:
    encoding = json.detect_encoding(text)
    try:
        return _FORGIVING.decode(text.decode(encoding, "replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _next(characters: str, at: int) -> int:
    match = _BETWEEN.match(characters, at)
    return at if match is None else match.end()


def _finite_or_none(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _integer_or_none(text: str) -> int | None:
    return int(text) if len(text) <= MAX_INTEGER_DIGITS else None


_FORGIVING = json.JSONDecoder(
    strict=False,
    parse_constant=_NULL_FOR_CONSTANT.__getitem__,
    parse_float=_finite_or_none,
    parse_int=_integer_or_none,
)
