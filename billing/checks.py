"""What must be true of an installation before it bills: Django's system checks."""

from typing import Any

from django.core.checks import CheckMessage, Error, register

from billing.estimation.vocabularies import VOCABULARIES, VocabularyError, read_checked


@register()
def check_vocabularies(**_options: Any) -> list[CheckMessage]:
    """Every vocabulary that estimates count with is on disk, byte for byte the one measured."""
    errors: list[CheckMessage] = []
    for file in {vocabulary.file: None for vocabulary in VOCABULARIES.values()}:
        try:
            read_checked(file)
        except (VocabularyError, OSError) as problem:
            errors.append(
                Error(
                    f"A vocabulary cannot be trusted: {problem}.",
                    hint=f"Reinstall {file.package} at the version pinned in requirements.txt.",
                    id="billing.E001",
                )
            )
    return errors
