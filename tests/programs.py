"""Find the programs that some tests need, getting Debian's where that is possible.

``python -m tests.programs [NAME…]``, as `make test` runs it: those that are named must be there.
Printed is what is to be left out, as the end of a pytest marker expression; what it does, and how
to help it, goes to standard error.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NODE = ROOT / "tests/clients/node"
INSTALL_SECONDS = 600
LEAN = "--no-install-recommends"  # npm's recommend compilers and hundreds of packages


@dataclass(frozen=True)
class Need:
    """One marker's programs: of each tuple any one will do. `prepare` answers why it cannot."""

    marker: str
    programs: tuple[tuple[str, ...], ...]
    packages: tuple[str, ...]
    prepare: Callable[[], str] = str

    def find(self) -> list[str] | None:
        found = [next(filter(None, map(shutil.which, names)), None) for names in self.programs]
        return None if None in found else found

    @property
    def hint(self) -> str:
        return f"apt-get install {' '.join(self.packages)}"


def install_node_modules(folder: Path = NODE) -> str:
    """Exactly what the lock pins, once for each lock."""
    lock = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    stamp = folder / "node_modules/.installed"
    if stamp.exists() and stamp.read_text() == lock:
        return ""
    say("Installing the clients of Node (checked against their hashes) …")
    command = ["npm", "ci", "--ignore-scripts", "--silent"]
    try:
        subprocess.run(command, cwd=folder, stdout=sys.stderr, check=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{' '.join(command)} failed: {error}"
    stamp.write_text(lock)
    return ""


BROWSER = Need(
    "browser",
    (("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),),
    ("chromium",),
)
NEEDS = (
    BROWSER,
    Need("node", (("node",), ("npm",)), (LEAN, "nodejs", "npm"), install_node_modules),
    Need("proxies", (("caddy",), ("nginx",)), (LEAN, "caddy", "nginx-light")),
)


def say(words: str) -> None:
    sys.stderr.write(f"{words}\n")


def install(need: Need) -> None:
    """Debian's packages, as root only; a failure is seen by looking again."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", *need.packages]):
        command = ["apt-get", *arguments]
        try:
            subprocess.run(
                command, env=environment, stdout=sys.stderr, check=True, timeout=INSTALL_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            say(f"{' '.join(command)} failed: {error}")
            return


def why_not(need: Need) -> str:
    """Get what is needed; answer a sentence where it cannot be had, else ""."""
    if need.find() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"We are root on a Debian: trying {need.hint} …")
        install(need)
    if need.find() is None:
        return f"not found on PATH (as root: {need.hint})"
    return need.prepare()


def main(required: list[str]) -> int:
    code, left_out = 0, []
    for need in NEEDS:
        reason = why_not(need)
        if not reason:
            continue
        say(f"*** NO {need.marker.upper()}: ITS TESTS ARE LEFT OUT OF THIS RUN: {reason} ***")
        left_out.append(f" and not {need.marker}")
        code |= need.marker in required
    sys.stdout.write("".join(left_out) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
