"""Make the virtual environment hold exactly what the requirement files pin.

Run as a script by the Makefile, before anything is installed: standard library only, and not as
part of the package. ``install.py VENV REQUIREMENTS…``. It does nothing where the files are the
ones that were installed last, compared by content, since a checkout changes times.
"""

import fcntl
import hashlib
import json
import subprocess
import sys
import venv
from contextlib import suppress
from pathlib import Path

STAMP_NAME = "installed.json"


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def works(python: Path) -> bool:
    """False also where the Python that the environment was made from is gone."""
    command = [str(python), "-c", "import pip"]
    with suppress(OSError):
        return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603
    return False


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def installed(folder: Path) -> dict[str, str]:
    """File name to fingerprint, as noted by the last installation."""
    try:
        noted = json.loads((folder / STAMP_NAME).read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def make(folder: Path) -> None:
    say(f"Making {folder} with Python {sys.version.split()[0]} …")
    venv.EnvBuilder(with_pip=True, clear=folder.exists(), symlinks=True).create(folder)


def install(folder: Path, requirements: list[Path]) -> int:
    """The exit code of the first pip that failed, or 0."""
    if not works(python_of(folder)):
        make(folder)
    noted = installed(folder)
    for path in requirements:
        if noted.get(path.name) == fingerprint(path):
            continue
        say(f"Installing {path.name} (checked against its hashes) …")
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        command = [str(python_of(folder)), "-m", "pip", "install", *quiet]
        code = subprocess.call([*command, "--require-hashes", "-r", str(path)])  # noqa: S603
        if code != 0:
            say(f"Installing {path.name} failed; pip's own words are above.")
            return code
        noted[path.name] = fingerprint(path)
        (folder / STAMP_NAME).write_text(json.dumps(noted, indent=1) + "\n")
    return 0


def main(arguments: list[str]) -> int:
    folder, *requirements = map(Path, arguments)
    try:
        # Two `make run` side by side must not install at once; this very file is what they share.
        with Path(__file__).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return install(folder, requirements)
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"The environment {folder} could not be made: {error}.")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
