import sys
from pathlib import Path

import pytest

from gateway.supervisor.options import read_options
from gateway.supervisor.services import PROJECT, Services, child_environment
from gateway.supervisor.state import Secrets, Var

SECRETS = Secrets("key", "pepper", "fernet", "database", "redis")


@pytest.fixture
def services(tmp_path):
    return Services(read_options({"VAR": str(tmp_path)}), Var(tmp_path), {"A": "1"})


def test_children_get_the_urls_and_the_secrets_that_settings_need(monkeypatch):
    for name in ("FARTHING_SECRET_KEY", "FARTHING_KEY_PEPPER", "FARTHING_FERNET_KEYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FARTHING_LOG_LEVEL", "DEBUG")
    found = child_environment(SECRETS, "postgresql://db/x", "redis://cache/0", "/var/spool")
    expected = {
        "FARTHING_SECRET_KEY": "key",
        "FARTHING_KEY_PEPPER": "pepper",
        "FARTHING_FERNET_KEYS": "fernet",
        "FARTHING_LOG_LEVEL": "DEBUG",
        "DATABASE_URL": "postgresql://db/x",
        "REDIS_URL": "redis://cache/0",
        "DJANGO_SETTINGS_MODULE": "gateway.settings",
    }
    assert {name: found[name] for name in expected} == expected


def test_a_secret_of_the_operators_own_is_kept(monkeypatch):
    monkeypatch.setenv("FARTHING_KEY_PEPPER", "new,old")
    assert child_environment(SECRETS, "", "", "")["FARTHING_KEY_PEPPER"] == "new,old"


def test_every_command_runs_in_the_project_with_a_log_of_its_own(services, tmp_path):
    commands = [
        services.migrate(),
        services.seed_demo("http://127.0.0.1:1/v1"),
        services.benchecho(1).command,
        services.worker().command,
        services.beat().command,
        services.gateway(1, 5).command,
        services.gateway(2, 5).command,
    ]
    assert {command.working_dir for command in commands} == {PROJECT}
    assert {command.argv[0] for command in commands} == {sys.executable}
    assert len({command.log_path for command in commands}) == len(commands)
    assert {command.log_path.parent for command in commands} == {tmp_path / "logs"}


def test_the_catalog_reaches_the_demo_only_where_one_is_given(services, tmp_path):
    state = ("--benchecho-url", "http://127.0.0.1:1/v1", "--state", str(tmp_path / "demo.json"))
    assert services.seed_demo("http://127.0.0.1:1/v1").argv[1:] == (
        "manage.py",
        "seed_demo",
        *state,
    )
    catalog = tmp_path / "catalog.yaml"
    catalog.touch()
    options = read_options({"VAR": str(tmp_path), "CATALOG": str(catalog)})
    with_catalog = Services(options, Var(tmp_path), {}).seed_demo("http://127.0.0.1:1/v1")
    assert with_catalog.argv[-2:] == ("--catalog", str(catalog))


def test_beat_keeps_its_schedule_under_the_data_folder(services, tmp_path):
    argv = services.beat().command.argv
    assert Path(argv[argv.index("--schedule") + 1]).parent == tmp_path


def test_gateway_processes_are_given_the_listening_socket(services):
    command = services.gateway(1, 5).command
    assert command.inherited_fds == (5,)
    assert command.argv[-2:] == ("5", "gateway.asgi:application")
