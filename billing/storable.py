"""What PostgreSQL takes of what others wrote: no NUL, no half of a character, no huge integer."""

import re
from collections.abc import Mapping
from typing import Any

import orjson

REPLACEMENT = "\ufffd"

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_NUL = b"\\u0000"
_INTEGERS = range(-(2**63), 2**64)


def storable(text: str) -> str:
    """Return the text as PostgreSQL takes it: U+FFFD for NUL and for halves of characters."""
    return _UNSTORABLE.sub(REPLACEMENT, text)


def storable_json(value: Any) -> Any:
    """Return the JSON value with every text and name in it storable.

    An integer beyond 64 bits becomes a double, and None where it is beyond those as well.
    """
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(str(name)): storable_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable_json(item) for item in value]
    if isinstance(value, int) and value not in _INTEGERS:
        return _double(value)
    return value


def encode_item(item: Mapping[str, Any]) -> bytes:
    """Return the item as JSON that PostgreSQL takes; nearly every item is so by itself.

    Raises TypeError for an item that is no JSON.
    """
    try:
        text = orjson.dumps(item)
    except TypeError:
        return orjson.dumps(storable_json(item))
    return orjson.dumps(storable_json(item)) if _NUL in text else text


def _double(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
