"""Names of exchanges: UUIDv7 inside, 26 characters of Crockford's base 32 outside.

The id carries its time (RFC 9562, version 7: 48 bits of milliseconds first), so rows of one time
stand together and an id alone tells the partition. The request's and the completion's public ids
are both the exchange's id in another dress; none is stored.
"""

import os
import time
from uuid import UUID

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
TEXT_LENGTH = 26
REQUEST_PREFIX = "req_"
COMPLETION_PREFIX = "chatcmpl-"

_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_VALUES = {character: value for value, character in enumerate(ALPHABET)}
_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62
_RANDOM_A = 0xFFF << 64
_RANDOM_B = (1 << 62) - 1


def new_exchange_id() -> UUID:
    milliseconds = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10), "big")
    number = (
        (milliseconds << 80) | _VERSION_7 | (noise & _RANDOM_A) | _VARIANT | (noise & _RANDOM_B)
    )
    return UUID(int=number)


def request_id(exchange_id: UUID) -> str:
    return REQUEST_PREFIX + _text(exchange_id)


def completion_id(exchange_id: UUID) -> str:
    return COMPLETION_PREFIX + _text(exchange_id)


def public_price_id(price_id: int) -> str:
    return f"pv_{price_id}"


def exchange_id_of(text: str) -> UUID | None:
    """The exchange that a request's or a completion's public id names; None if it names none."""
    for prefix in (REQUEST_PREFIX, COMPLETION_PREFIX):
        if text.startswith(prefix):
            return _uuid(text.removeprefix(prefix).upper())
    return None


def _text(exchange_id: UUID) -> str:
    number = exchange_id.int
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(120, -1, -10)])


def _uuid(text: str) -> UUID | None:
    if len(text) != TEXT_LENGTH:
        return None
    number = 0
    for character in text:
        value = _VALUES.get(character)
        if value is None:
            return None
        number = number << 5 | value
    return UUID(int=number) if number < 1 << 128 else None
