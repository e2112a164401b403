"""What must hold before a process with secrets starts."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register


@register(Tags.security, deploy=True)
def check_secrets(*_args: Any, **_kwargs: Any) -> Sequence[CheckMessage]:
    found = {
        "FARTHING_SECRET_KEY": settings.SECRET_KEY != "not-a-secret",  # noqa: S105
        "FARTHING_KEY_PEPPER": bool(settings.KEY_PEPPERS),
        "FARTHING_FERNET_KEYS": bool(settings.FERNET_KEYS),
    }
    return [
        Error(
            f"{name} is not set.",
            hint="`make run` makes one; see docs/configuration.md.",
            id="keys.E001",
        )
        for name, is_set in found.items()
        if not is_set
    ]
