"""As whom PostgreSQL runs. Its server refuses root, and nothing outside our folder may change."""

import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gateway.supervisor import launch
from gateway.supervisor.errors import StartError

PROBE_SECONDS = 20.0
ROOT_UID = 0
FALLBACK_USER = "nobody"


@dataclass(frozen=True, slots=True)
class Identity:
    """`kind` is `same`, `namespace` or `drop`, as in `launch.py`."""

    kind: str
    uid: int
    gid: int

    @property
    def argument(self) -> str:
        if self.kind == "namespace":
            return f"namespace:{self.uid}"
        if self.kind == "drop":
            return f"drop:{self.uid}:{self.gid}"
        return "same"


def same() -> Identity:
    return Identity("same", os.geteuid(), os.getegid())


def choose_identity(data_dir: Path, program: Path) -> Identity:
    """Find an identity under which `program` runs and enters the folder above `data_dir`.

    Raises StartError where there is none.
    """
    if os.geteuid() != ROOT_UID:
        return same()
    for identity in _candidates(data_dir):
        if _works(identity, data_dir.parent, program):
            return identity
    raise StartError(
        "PostgreSQL refuses to run as root and no other identity can be taken here: "
        "start Farthing as an ordinary user, or set DATABASE_URL to a server of your own."
    )


def give_folder(data_dir: Path, identity: Identity) -> None:
    """Make `data_dir` the property of a dropped-to user; the folder itself comes last.

    An interrupted hand-over is therefore seen, and done again, at the next start.
    """
    if identity.kind != "drop" or data_dir.stat().st_uid == identity.uid:
        return
    for path in data_dir.rglob("*"):
        os.lchown(path, identity.uid, identity.gid)
    os.lchown(data_dir, identity.uid, identity.gid)


def _candidates(data_dir: Path) -> list[Identity]:
    owner = data_dir.stat().st_uid if data_dir.exists() else ROOT_UID
    if owner != ROOT_UID:
        return [Identity("drop", owner, data_dir.stat().st_gid)]
    found = []
    ordinary = next((user for user in pwd.getpwall() if user.pw_uid != ROOT_UID), None)
    if ordinary is not None:  # initdb looks its user up by number: it must be a known one
        found.append(Identity("namespace", ordinary.pw_uid, ordinary.pw_uid))
    try:
        fallback = pwd.getpwnam(FALLBACK_USER)
    except KeyError:
        return found
    return [*found, Identity("drop", fallback.pw_uid, fallback.pw_gid)]


def _works(identity: Identity, folder: Path, program: Path) -> bool:
    argv = launch_argv([str(program), "--version"], identity=identity, reach=folder)
    done = subprocess.run(argv, capture_output=True, check=False, timeout=PROBE_SECONDS)  # noqa: S603
    return done.returncode == 0


def launch_argv(
    command: list[str], *, identity: Identity, stop_signal: int = 15, reach: Path | None = None
) -> list[str]:
    """Wrap `command` so that it starts through `launch.py` as a child of this very process."""
    script = [sys.executable, "-I", "-S", launch.__file__]
    tied = [str(int(stop_signal)), str(os.getpid()), identity.argument]
    return [*script, *tied, "" if reach is None else str(reach), *command]
