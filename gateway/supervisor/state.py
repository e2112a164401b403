"""What is kept under VAR between runs: the lock, secrets, ports, who our children are."""

import base64
import errno
import fcntl
import json
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.supervisor.embedded import free_port
from gateway.supervisor.errors import StartError
from gateway.supervisor.files import PRIVATE_FILE, PRIVATE_FOLDER, write_private
from gateway.supervisor.processes import Child

MIN_FREE_BYTES = 200 * 1024 * 1024
ORPHAN_SECONDS = 8.0
POLL_SECONDS = 0.05
START_TICKS_FIELD = 19  # of /proc/PID/stat, counted behind the name in brackets
PASSWORD_BYTES = 24
SECRET_BYTES = 48
FERNET_KEY_BYTES = 32
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Secrets:
    """Made once. `database_password` and `redis_password` are of the embedded servers."""

    secret_key: str
    key_pepper: str
    fernet_key: str
    database_password: str
    redis_password: str


class Var:
    """The data folder. Every method raises StartError where the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.ready = folder / "ready.json"
        self.demo = folder / "demo.json"
        self._lock_fd: int | None = None

    def open(self, min_free_bytes: int = MIN_FREE_BYTES) -> None:
        """Make it, look whether there is room, and lock it until this process ends."""
        try:
            self.folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._check_room(min_free_bytes)
            self.logs.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        except OSError as error:
            raise unusable(self.folder, error) from error
        self._lock(descriptor)

    def _check_room(self, min_free_bytes: int) -> None:
        free_bytes = shutil.disk_usage(self.folder).free
        if free_bytes < min_free_bytes:
            raise StartError(
                f"The disk that holds {self.folder} is full: {free_bytes // 2**20} MB are free, "
                f"{min_free_bytes // 2**20} MB are needed."
            )

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StartError(
                f"Another Farthing (process {owner}) runs on {self.folder}: stop it, or choose "
                "another folder with VAR."
            ) from error
        self._lock_fd = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def read(self, name: str) -> dict[str, Any]:
        """A JSON object that an earlier run wrote, or {} where there is none."""
        path = self.folder / name
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise unusable(self.folder, error) from error
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise StartError(f"{path} is broken; restore it, or choose another folder with VAR.")
        return found

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        try:
            write_private(self.folder / name, json.dumps(content, indent=1) + "\n")
        except OSError as error:
            raise unusable(self.folder, error) from error

    def secrets(self) -> Secrets:
        """Read them, or make them, whole or not at all."""
        found = self.read("secrets.json")
        if not found:
            fernet_key = base64.urlsafe_b64encode(secrets.token_bytes(FERNET_KEY_BYTES)).decode()
            found = {
                "secret_key": secrets.token_urlsafe(SECRET_BYTES),
                "key_pepper": secrets.token_urlsafe(SECRET_BYTES),
                "fernet_key": fernet_key,
                "database_password": secrets.token_hex(PASSWORD_BYTES),
                "redis_password": secrets.token_hex(PASSWORD_BYTES),
            }
            self.write("secrets.json", found)
        try:
            return Secrets(**{name: str(text) for name, text in found.items()})
        except TypeError as error:
            raise StartError(
                f"{self.folder / 'secrets.json'} is broken; restore it, or choose another folder "
                "with VAR."
            ) from error

    def port(self, name: str) -> int:
        """The port of last time, if it is free: addresses in the catalog stay true."""
        known = self.read("ports.json").get(name)
        return free_port(known if isinstance(known, int) else None)

    def keep_port(self, name: str, port: int) -> None:
        self.write("ports.json", {**self.read("ports.json"), name: port})

    def record(self, children: Iterable[Child]) -> None:
        """Write down who our children are, so that a next run can end what a crash leaves."""
        rows = [
            {
                "pid": child.pid,
                "start_ticks": start_ticks(child.pid),
                "stop_signal": int(child.command.stop_signal),
            }
            for child in children
            if child.pid is not None
        ]
        self.write("children.json", {"boot_id": BOOT_ID.read_text().strip(), "children": rows})

    def end_orphans(self) -> int:
        """End the children of an earlier run that was killed; returns how many still lived."""
        noted = self.read("children.json")
        if noted.get("boot_id") != BOOT_ID.read_text().strip():
            return 0
        rows = [row for row in noted.get("children", []) if _is_alive(row)]
        for row in rows:
            os.kill(row["pid"], row["stop_signal"])
        deadline = time.monotonic() + ORPHAN_SECONDS
        while any(_is_alive(row) for row in rows) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        for row in filter(_is_alive, rows):
            os.killpg(row["pid"], signal.SIGKILL)
        return len(rows)


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since boot: with its number, its identity. None if gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state == "Z" else int(rest[START_TICKS_FIELD - 1])


def unusable(folder: Path, error: OSError) -> StartError:
    """The sentence for a folder that the system does not let us use."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StartError(f"The disk that holds {folder} is full.")
    reason = error.strerror or str(error)
    where = error.filename or folder
    return StartError(f"The data folder {folder} cannot be used ({where}: {reason}).")


def _is_alive(row: Mapping[str, Any]) -> bool:
    return row["start_ticks"] is not None and start_ticks(row["pid"]) == row["start_ticks"]
