import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("browser.py")


def run(folder: Path) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-I", str(SCRIPT)]
    environment = {**os.environ, "PATH": str(folder)}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def program(path: Path, source: str) -> None:
    path.write_text(f"#!/bin/sh\n{source}\n")
    path.chmod(0o755)


def test_a_browser_on_the_path_is_found(tmp_path):
    program(tmp_path / "chromium-browser", "exit 0")
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'chromium-browser'}\n")


def test_without_one_it_says_how_to_get_one(tmp_path):
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("No Chromium was found. To get one: apt-get install chromium")


def test_root_gets_debians_and_others_are_told(tmp_path):
    chromium = tmp_path / "chromium"
    install = f'[ "$1" = update ] || {{ echo noise; : > {chromium}; /bin/chmod 755 {chromium}; }}'
    program(tmp_path / "apt-get", install)
    done = run(tmp_path)
    if os.geteuid() == 0:
        assert (done.returncode, done.stdout) == (0, f"{chromium}\n")
        assert "noise" in done.stderr
    else:
        assert (done.returncode, done.stdout) == (1, "")


def test_a_package_that_cannot_be_had_is_no_browser(tmp_path):
    program(tmp_path / "apt-get", "exit 100")
    done = run(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
