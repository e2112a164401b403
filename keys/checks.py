"""What must hold before a process with secrets starts."""

from collections.abc import Sequence
from typing import Any

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register


@register(Tags.security, deploy=True)
def check_secrets(*_args: Any, **_kwargs: Any) -> Sequence[CheckMessage]:
    found = {
        "FARTHING_SECRET_KEY": settings.SECRET_KEY != "not-a-secret",  # noqa: S105
        "FARTHING_KEY_PEPPER": bool(settings.KEY_PEPPERS),
        "FARTHING_FERNET_KEYS": bool(settings.FERNET_KEYS),
    }
    missing = [
        Error(
            f"{name} is not set.",
            hint="`make run` makes one; see docs/configuration.md.",
            id="keys.E001",
        )
        for name, is_set in found.items()
        if not is_set
    ]
    malformed = [
        Error(
            f"Number {number} of FARTHING_FERNET_KEYS is no Fernet key.",
            hint="It is 32 bytes in URL-safe base 64; see docs/configuration.md.",
            id="keys.E002",
        )
        for number, key in enumerate(settings.FERNET_KEYS, 1)
        if not _is_fernet_key(key)
    ]
    return [*missing, *malformed]


def _is_fernet_key(key: str) -> bool:
    try:
        Fernet(key)
    except ValueError:
        return False
    return True
