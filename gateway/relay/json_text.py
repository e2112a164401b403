"""JSON as vendors write it: strict where it can be, forgiving where they are known to be wrong."""

import json
import math
import re
from typing import Any

import orjson

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
        old = value.get(name)
        if not isinstance(old, str):
            return None
        spans = [match.span() for match in string_member(name, old).finditer(out)]
        if len(spans) != 1:
            return None
        start, end = spans[0]
        out = b"".join((out[:start], b'"', name.encode(), b'":', orjson.dumps(new), out[end:]))
    try:
        is_same = orjson.loads(out) == {**value, **changes}
    except orjson.JSONDecodeError:
        return None
    return out if is_same else None


def string_member(name: str, value: str) -> re.Pattern[bytes]:
    """Return a pattern for one member of an object.

    Quotes inside of JSON strings are escaped, so it cannot match in the middle of a text.
    """
    return re.compile(rb'"%s"\s*:\s*%s' % (name.encode(), re.escape(encode(value))))


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
