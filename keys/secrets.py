"""The shape of an API key: `sk_<kind>_<public id>_<secret><checksum>`.

- public id: 10 characters, names the row; may be shown and logged.
- secret: 27 characters of base 62, 160.8 bits from the system's generator.
- checksum: CRC-32 of all that stands before it, 6 characters of base 62, so that a typo or a
  scanner's false hit is told apart without asking the database.

Only `fingerprint` is stored: HMAC-SHA-256 under a pepper that lives outside the database.
"""

import hmac
import re
import secrets
import zlib
from dataclasses import dataclass

from django.conf import settings

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PUBLIC_ID_LENGTH = 10
SECRET_LENGTH = 27
CHECKSUM_LENGTH = 6
KEY_LENGTH_MAX = 64

_SHAPE = re.compile(
    rf"sk_(live|test|sys)_([0-9A-Za-z]{{{PUBLIC_ID_LENGTH}}})"
    rf"_([0-9A-Za-z]{{{SECRET_LENGTH}}})([0-9A-Za-z]{{{CHECKSUM_LENGTH}}})"
)


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret on its one way to the person who asked for it. Never stored, never logged."""

    public_id: str
    text: str
    fingerprint: bytes

    @property
    def last_four(self) -> str:
        return self.text[-4:]

    def __repr__(self) -> str:
        return f"NewSecret({self.public_id})"


def make(kind: str) -> NewSecret:
    public_id = _random(PUBLIC_ID_LENGTH)
    head = f"sk_{kind}_{public_id}_{_random(SECRET_LENGTH)}"
    text = head + _checksum(head)
    return NewSecret(public_id, text, fingerprint(text, settings.KEY_PEPPERS[0]))


def public_id_of(text: str) -> str | None:
    """The public id of a well-formed key with a right checksum; None for anything else."""
    if len(text) > KEY_LENGTH_MAX:
        return None
    match = _SHAPE.fullmatch(text)
    if match is None or _checksum(text[:-CHECKSUM_LENGTH]) != match[4]:
        return None
    return match[2]


def fingerprint(text: str, pepper: str) -> bytes:
    """32 bytes."""
    return hmac.digest(pepper.encode(), text.encode(), "sha256")


def matches(text: str, stored: bytes) -> bool:
    """True if `text` is the key whose fingerprint is `stored`, under any pepper still in use."""
    return any(
        hmac.compare_digest(fingerprint(text, pepper), stored) for pepper in settings.KEY_PEPPERS
    )


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def _checksum(head: str) -> str:
    number = zlib.crc32(head.encode())
    digits = []
    for _ in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
