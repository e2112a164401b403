"""One child process: its command, its log, its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from gateway.supervisor.errors import StartError
from gateway.supervisor.identity import Identity, launch_argv, same

LOG_MAX_BYTES = 8 * 1024 * 1024
LOG_TAIL_BYTES = 16 * 1024
LOG_TAIL_LINES = 12
REASON_LINES = 3
POLL_SECONDS = 0.05
DISK_FULL = "No space left on device"
REASON_MARKS = ("PANIC:", "FATAL:", "error:", "Error:", "ERROR:")

Pause = Callable[[float], None]
"""Waits so many seconds; the supervisor's own raises StopRequested when it is asked to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`environment` is the whole of it, nothing is inherited. `name` is what people read."""

    name: str
    argv: tuple[str, ...]
    log_path: Path
    environment: Mapping[str, str]
    stop_signal: signal.Signals = signal.SIGTERM
    identity: Identity = field(default_factory=same)
    inherited_fds: tuple[int, ...] = ()
    working_dir: Path | None = None


class Child:
    """A command that runs in a session of its own, so that a Ctrl-C reaches only its parent."""

    def __init__(self, command: Command, stdout: IO[bytes] | None = None) -> None:
        """`stdout` is for answers, which may hold secrets and must not reach a log."""
        self.command = command
        self._stdout = stdout
        self._process: subprocess.Popen[bytes] | None = None
        self._log_offset = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Raises StartError where the log cannot be written or the program is not there."""
        command = self.command
        argv = launch_argv(
            list(command.argv), identity=command.identity, stop_signal=command.stop_signal
        )
        try:
            bound_log(command.log_path)
            with command.log_path.open("ab") as log:
                self._log_offset = log.tell()
                self._process = subprocess.Popen(  # noqa: S603  # our own programs only
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=self._stdout or log,
                    stderr=log,
                    env=dict(command.environment),
                    cwd=command.working_dir,
                    pass_fds=command.inherited_fds,
                    start_new_session=True,
                )
        except OSError as error:
            raise StartError(f"{command.name} could not be started: {error}.") from error

    def exit_code(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        if self._process is None:
            return None
        if self._process.returncode is None and self._has_ended():
            # Before it is reaped nobody else can get its id, so only its own family is hit.
            self._signal_family(signal.SIGKILL)
            self._process.wait()
        return self._process.returncode

    def is_running(self) -> bool:
        return self._process is not None and self.exit_code() is None

    def ask_to_stop(self) -> None:
        if self._process is not None and self.is_running():
            self._process.send_signal(self.command.stop_signal)

    def kill(self) -> None:
        """End it and its family at once, as `kill -9` does, and wait until it is gone."""
        if self._process is not None and self.is_running():
            self._signal_family(signal.SIGKILL)
            self._process.wait()

    def stop(self, seconds: float) -> None:
        """Ask, wait so long, then kill."""
        self.ask_to_stop()
        wait_until_ended([self], seconds)
        self.kill()

    def output(self) -> str:
        """What it has logged since this start: the last LOG_TAIL_BYTES of it."""
        try:
            with self.command.log_path.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_offset, end - LOG_TAIL_BYTES))
                return log.read(LOG_TAIL_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def last_lines(self) -> list[str]:
        return [line for line in self.output().splitlines() if line.strip()][-LOG_TAIL_LINES:]

    def _has_ended(self) -> bool:
        if self._process is None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def _signal_family(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return


def wait_until_ended(children: list[Child], seconds: float) -> bool:
    """Whether all of them had ended within so many seconds."""
    deadline = time.monotonic() + seconds
    while any(child.is_running() for child in children):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def run_to_end(
    command: Command, *, seconds: float, pause: Pause, stdout: IO[bytes] | None = None
) -> None:
    """Run a command that ends by itself; raises StartError if it fails or takes too long."""
    child = Child(command, stdout)
    child.start()
    deadline = time.monotonic() + seconds
    try:
        while child.is_running():
            if time.monotonic() >= deadline:
                raise StartError(f"{command.name} took longer than {seconds:.0f} s and was ended.")
            pause(POLL_SECONDS)
    finally:
        child.kill()
    if child.exit_code() != 0:
        raise failure(child, "failed")


def failure(child: Child, what: str = "did not start") -> StartError:
    """Why a child has ended: a sentence out of its own last words, and the words if it is ours."""
    command = child.command
    lines = child.last_lines()
    if any(DISK_FULL in line for line in lines):
        folder = command.log_path.parent
        return StartError(f"{command.name} stopped: the disk that holds {folder} is full.")
    reason = next((ln for ln in reversed(lines) if any(w in ln for w in REASON_MARKS)), None)
    words = (reason or " ".join(lines[-REASON_LINES:]) or describe_exit(child.exit_code())).strip()
    sentence = f"{command.name} {what}: {words.rstrip('.')} (see {command.log_path})."
    is_ours = command.argv[0] == sys.executable
    return StartError(sentence, lines if is_ours else [])


def describe_exit(code: int | None) -> str:
    if code is None:
        return "is still running"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def bound_log(path: Path) -> None:
    """Put a log that has grown past LOG_MAX_BYTES aside; one older one is kept."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_MAX_BYTES:
        path.replace(path.with_name(path.name + ".1"))
