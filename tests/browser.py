"""Print the path of a Chromium, getting Debian's where that is possible; fail without one.

Run as a script by `make test`. What it does and how to help it goes to standard error.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL_SECONDS = 600
COMMANDS = (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"])


def find() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def install() -> None:
    """Debian's package, as root only; a failure is seen by looking again."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in COMMANDS:
        try:
            subprocess.run(
                command, env=environment, stdout=sys.stderr, check=True, timeout=INSTALL_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            sys.stderr.write(f"{' '.join(command)} failed: {error}\n")
            return


def main() -> int:
    path = find()
    if path is None:
        sys.stderr.write(
            "No Chromium was found. To get one: apt-get install chromium (as root), or put a "
            "chromium or google-chrome on PATH.\n"
        )
        if os.geteuid() == 0 and shutil.which("apt-get"):
            sys.stderr.write("We are root on a Debian: trying its package now …\n")
            install()
            path = find()
    if path is None:
        return 1
    sys.stdout.write(path + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
