"""The units start what `make run` starts, and speak of variables that exist."""

import re
from pathlib import Path

import pytest

from gateway.supervisor.options import read_options
from gateway.supervisor.serve import BACKLOG, KEEP_ALIVE_SECONDS
from gateway.supervisor.services import Services
from gateway.supervisor.state import Var
from tests.stack import ROOT

UNITS = ROOT / "deploy/systemd"
VARIABLE = re.compile(r"^([A-Z][A-Z_]+)=", re.MULTILINE)


def started(name: str) -> list[str]:
    """What a unit runs, behind the Python."""
    (line,) = re.findall(r"^ExecStart=(.+)$", (UNITS / name).read_text(), re.MULTILINE)
    return line.split()[1:]


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return Services(read_options({"VAR": str(tmp_path)}), Var(Path("/var/lib/farthing")), {})


def test_the_gateway_is_served_as_by_make_run(services) -> None:
    command = services.gateway(1, 3).command
    assert started("farthing-gateway@.service") == list(command.argv[1:])


def test_worker_beat_and_benchecho_are_started_as_by_make_run(services) -> None:
    for name in ("worker", "beat"):
        ours = getattr(services, name)().command.argv[1:]
        unit = " ".join(started(f"farthing-{name}.service")).replace("--pidfile=", "--pidfile ")
        assert sorted(unit.split()) == sorted(word for word in ours if word)
    assert started("farthing-benchecho.service") == list(services.benchecho(8001).command.argv[1:])


def test_the_socket_takes_as_many_and_small_pieces_do_not_wait() -> None:
    text = (UNITS / "farthing-gateway.socket").read_text()
    assert f"Backlog={BACKLOG}\n" in text
    assert "NoDelay=true\n" in text


def test_proxies_let_go_of_idle_connections_before_the_gateway_does() -> None:
    for name, words in (("Caddyfile", "keepalive 60s"), ("nginx.conf", "keepalive_timeout 60s")):
        assert words in (ROOT / "deploy" / name).read_text()
    assert KEEP_ALIVE_SECONDS > 60


def test_every_variable_of_the_page_is_in_the_reference() -> None:
    page = (ROOT / "deploy/README.md").read_text()
    reference = (ROOT / "docs/configuration.md").read_text()
    names = set(VARIABLE.findall(page))
    assert len(names) == 11
    assert {name for name in names if f"| `{name}` |" not in reference} == set()


def test_every_unit_is_on_the_page() -> None:
    page = (ROOT / "deploy/README.md").read_text()
    assert {unit.name for unit in UNITS.iterdir() if unit.name not in page} == set()
