import os
from pathlib import Path

import pytest

from tests import programs
from tests.programs import Need

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """All that is on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(path: Path, source: str = "exit 0") -> None:
    path.write_text(f"#!/bin/sh\n{source}\n")
    path.chmod(0o755)


def installer(folder: Path, name: str) -> None:
    """An apt-get that brings the program."""
    path = folder / name
    install = f'[ "$1" = update ] || {{ echo noise; : > {path}; /bin/chmod 755 {path}; }}'
    program(folder / "apt-get", install)


NEED = Need("browser", (("chromium", "google-chrome"),), ("chromium",))


def test_any_of_the_names_will_do(folder) -> None:
    program(folder / "google-chrome")
    assert NEED.find() == [str(folder / "google-chrome")]
    assert programs.why_not(NEED) == ""


def test_all_of_the_programs_are_needed(folder) -> None:
    need = Need("proxies", (("caddy",), ("nginx",)), ("caddy", "nginx-light"))
    program(folder / "caddy")
    assert "apt-get install caddy nginx-light" in programs.why_not(need)
    program(folder / "nginx")
    assert programs.why_not(need) == ""


def test_root_gets_debians_and_others_are_told(folder, capfd) -> None:
    installer(folder, "chromium")
    reason = programs.why_not(NEED)
    assert (reason == "") is IS_ROOT
    assert ("noise" in capfd.readouterr().err) is IS_ROOT


def test_a_package_that_cannot_be_had_is_no_program(folder) -> None:
    program(folder / "apt-get", "exit 100")
    assert programs.why_not(NEED) == "not found on PATH (as root: apt-get install chromium)"


def test_what_is_missing_is_told_loudly_and_left_out(folder, monkeypatch, capfd) -> None:
    there = Need("node", (("node",),), ("nodejs",))
    program(folder / "node")
    monkeypatch.setattr(programs, "NEEDS", (NEED, there))
    assert programs.main([]) == 0
    said = capfd.readouterr()
    assert said.out == " and not browser\n"
    assert "*** NO BROWSER: ITS TESTS ARE LEFT OUT OF THIS RUN: not found on PATH" in said.err
    assert programs.main(["node"]) == 0
    assert programs.main(["node", "browser"]) == 1


def test_a_program_that_cannot_be_prepared_is_missing(folder) -> None:
    program(folder / "chromium")
    need = Need("browser", (("chromium",),), ("chromium",), lambda: "it has no screen")
    assert programs.why_not(need) == "it has no screen"


def test_the_clients_of_node_are_installed_once_for_each_lock(folder) -> None:
    lock = folder / "package-lock.json"
    lock.write_text("{}")
    (folder / "node_modules").mkdir()
    program(folder / "npm", f'echo "$@" >> {folder}/calls')
    for _ in range(2):
        assert programs.install_node_modules(folder) == ""
    lock.write_text("{ }")
    assert programs.install_node_modules(folder) == ""
    assert (folder / "calls").read_text() == "ci --ignore-scripts --silent\n" * 2


def test_clients_that_cannot_be_installed_are_asked_for_again(folder) -> None:
    (folder / "package-lock.json").write_text("{}")
    (folder / "node_modules").mkdir()
    program(folder / "npm", "exit 1")
    for _ in range(2):
        assert "npm ci --ignore-scripts --silent failed" in programs.install_node_modules(folder)


def test_locks_name_no_registry() -> None:
    for name in ("package-lock.json", "package.json"):
        text = (programs.NODE / name).read_text()
        assert '"resolved"' not in text
        assert "registry" not in text
