"""Text that is encrypted in the database: vendor credentials.

`MultiFernet` encrypts with the first key of FARTHING_FERNET_KEYS and decrypts with any, so a key
is rotated by putting a new one in front and saving the rows again.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.db import models

if TYPE_CHECKING:
    _TextField = models.Field[str, str]
else:
    _TextField = models.Field  # generic for the type checker only


class EncryptedTextField(_TextField):
    """A text in Python, a Fernet token in the database. Cannot be filtered by."""

    def get_internal_type(self) -> str:
        return "BinaryField"

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else _cipher().encrypt(str(value).encode())

    def from_db_value(self, value: Any, *_args: Any) -> str | None:
        return None if value is None else _cipher().decrypt(bytes(value)).decode()


def _cipher() -> MultiFernet:
    return _fernet(*settings.FERNET_KEYS)


@lru_cache(maxsize=4)
def _fernet(*keys: str) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])
