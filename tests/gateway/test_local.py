import json

import pytest

from gateway.local import environment

STORES = {"database_url": "postgresql://h/farthing", "redis_url": "redis://h/0"}
SECRETS = {"secret_key": "s", "key_pepper": "p", "fernet_key": "f"}


@pytest.fixture
def var(tmp_path, monkeypatch):
    for name in ("DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name)
    for name in ("FARTHING_SECRET_KEY", "FARTHING_KEY_PEPPER", "FARTHING_FERNET_KEYS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("VAR", str(tmp_path))
    (tmp_path / "ready.json").write_text(json.dumps(STORES))
    (tmp_path / "secrets.json").write_text(json.dumps(SECRETS))
    return tmp_path


def test_a_running_instance_is_found_by_its_data_folder(var) -> None:
    found = environment()
    assert found["DATABASE_URL"] == STORES["database_url"]
    assert found["FARTHING_KEY_PEPPER"] == "p"


def test_the_environment_goes_before_the_data_folder(var, monkeypatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://other/farthing")
    found = environment()
    assert found["DATABASE_URL"] == "postgresql://other/farthing"
    assert found["REDIS_URL"] == STORES["redis_url"]


@pytest.mark.parametrize("broken", ["", "[]", "{", "null"])
def test_a_broken_or_absent_file_gives_nothing(var, broken: str) -> None:
    (var / "ready.json").write_text(broken)
    (var / "secrets.json").unlink()
    found = environment()
    assert "DATABASE_URL" not in found
    assert "FARTHING_KEY_PEPPER" not in found
