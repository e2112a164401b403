"""Nothing is fetched: the only requirement is a package made here, in a local folder."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gateway.supervisor import install

SCRIPT = Path(install.__file__)


def make_wheel(folder: Path, version: str) -> str:
    """A wheel of one module; returns its requirement line with a hash."""
    path = folder / f"farthingprobe-{version}-py3-none-any.whl"
    info = f"farthingprobe-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("farthingprobe.py", f"VERSION = {version!r}\n")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: farthingprobe\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"farthingprobe=={version} --hash=sha256:{digest}\n"


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    """A folder with wheels of two versions and an environment that has the first."""
    folder = tmp_path_factory.mktemp("ground")
    source = f"--no-index\n--find-links {folder}\n"
    lines = {version: source + make_wheel(folder, version) for version in ("1.0", "2.0")}
    requirements = folder / "requirements.txt"
    requirements.write_text(lines["1.0"])
    first = run(folder)
    assert first.returncode == 0, first.stdout + first.stderr
    return folder, lines, first.stdout


def run(folder: Path, *names: str) -> subprocess.CompletedProcess:
    paths = [str(folder / name) for name in names or ("requirements.txt",)]
    argv = [sys.executable, "-I", str(SCRIPT), str(folder / "env"), *paths]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def version_in(folder: Path) -> str:
    argv = [str(folder / "env/bin/python"), "-c", "import farthingprobe as p; print(p.VERSION)"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_requirements_are_installed_once_and_again_only_when_they_change(ground):
    folder, lines, first_words = ground
    requirements = folder / "requirements.txt"
    assert (
        first_words.splitlines()[-1] == "Installing requirements.txt (checked against its hashes) …"
    )
    assert version_in(folder) == "1.0"
    requirements.touch()
    assert run(folder).stdout == ""
    requirements.write_text(lines["2.0"])
    assert run(folder).stdout == "Installing requirements.txt (checked against its hashes) …\n"
    assert version_in(folder) == "2.0"


def test_a_hash_that_does_not_match_installs_nothing_and_is_not_noted(ground):
    folder, lines, _ = ground
    wrong = folder / "wrong.txt"
    before = version_in(folder)
    other = {"1.0": "2.0", "2.0": "1.0"}[before]
    wrong.write_text(lines[other].replace("sha256:", "sha256:0")[:-2] + "\n")
    done = run(folder, "wrong.txt")
    assert done.returncode != 0
    assert done.stdout.endswith("Installing wrong.txt failed; pip's own words are above.\n")
    assert version_in(folder) == before
    assert "wrong.txt" not in json.loads((folder / "env" / "installed.json").read_text())


def test_an_environment_whose_python_is_gone_is_made_anew(tmp_path):
    python = install.python_of(tmp_path / "env")
    assert not install.works(python)
    python.parent.mkdir(parents=True)
    python.symlink_to("/nonexistent/python3")
    assert not install.works(python)


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_broken_note_means_nothing_is_known(tmp_path, text):
    (tmp_path / "installed.json").write_text(text)
    assert install.installed(tmp_path) == {}


def test_a_place_that_cannot_be_written_is_one_sentence():
    argv = [sys.executable, "-I", str(SCRIPT), "/proc/none/env", "/dev/null"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert last.startswith("The environment /proc/none/env could not be made: ")
