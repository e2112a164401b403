"""JSON as vendors write it: strict where it can be, forgiving where they are known to be wrong."""

import json
import math
from typing import Any

import orjson

_COLONS = (b":", b": ")
_NULL_FOR_CONSTANT = {"NaN": None, "Infinity": None, "-Infinity": None}


def decode(text: bytes) -> Any:
    """Decode a vendor's JSON; raise ValueError where it is none.

    NaN, the infinities and numbers beyond a double become None, which is legal JSON. Half a
    surrogate pair, which some vendors split over two events, is kept as it is.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _decode_forgiving(text)


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
    try:
        return json.loads(
            text, parse_constant=_NULL_FOR_CONSTANT.__getitem__, parse_float=_finite_or_none
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _finite_or_none(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
