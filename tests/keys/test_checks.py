import pytest
from cryptography.fernet import Fernet
from django.core import checks

from keys.checks import check_secrets

SOUND = {
    "SECRET_KEY": "a secret",
    "KEY_PEPPERS": ["a pepper"],
    "FERNET_KEYS": [Fernet.generate_key().decode()],
}


@pytest.fixture(autouse=True)
def sound(settings) -> None:
    for name, value in SOUND.items():
        setattr(settings, name, value)


def test_with_all_three_nothing_is_wrong() -> None:
    assert check_secrets() == []


@pytest.mark.parametrize(
    ("name", "value", "variable"),
    [
        ("SECRET_KEY", "not-a-secret", "FARTHING_SECRET_KEY"),
        ("KEY_PEPPERS", [], "FARTHING_KEY_PEPPER"),
        ("FERNET_KEYS", [], "FARTHING_FERNET_KEYS"),
    ],
)
def test_a_missing_secret_is_named_with_a_hint(settings, name, value, variable: str) -> None:
    setattr(settings, name, value)
    (error,) = check_secrets()
    assert (error.id, error.msg) == ("keys.E001", f"{variable} is not set.")
    assert "docs/configuration.md" in error.hint


def test_a_malformed_key_is_told_by_its_place_and_not_shown(settings) -> None:
    settings.FERNET_KEYS = [*SOUND["FERNET_KEYS"], "CANARY"]
    (error,) = check_secrets()
    assert error.id == "keys.E002"
    assert error.msg == "Number 2 of FARTHING_FERNET_KEYS is no Fernet key."
    assert "CANARY" not in str(error)


def test_it_is_asked_at_a_deployment(settings) -> None:
    settings.KEY_PEPPERS = []
    tags = [checks.Tags.security]
    assert "keys.E001" not in {error.id for error in checks.run_checks(tags=tags)}
    found = checks.run_checks(tags=tags, include_deployment_checks=True)
    assert "keys.E001" in {error.id for error in found}
