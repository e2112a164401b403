"""The folder under VAR in which all of this happens: programs, servers, logs, and their end."""

import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from gateway.supervisor import serve
from gateway.supervisor.errors import StartError
from gateway.supervisor.processes import Child, Command, failure, run_to_end
from gateway.supervisor.state import Var

PROJECT = Path(__file__).resolve().parent.parent
NATIVE = Path(__file__).parent / "native"
COMPILERS = ("cc", "gcc", "clang")
READY_SECONDS = 60.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05
OPEN_FILES = 16_384  # 1,000 streams have two sockets each
BACKLOG = 2048


class Workshop:
    """Use it as a context: what it has started ends with it, last first."""

    def __init__(self, folder: Path) -> None:
        self.var = Var(folder)
        self.folder = folder
        self._stops: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        self.var.open()
        _raise_open_files()
        return self

    def __exit__(self, *_: object) -> None:
        for stop in reversed(self._stops):
            stop()
        self.var.close()

    def at_end(self, stop: Callable[[], object]) -> None:
        self._stops.append(stop)

    def compile(self, name: str) -> Path:
        """Build bench/native/NAME.c with the machine's compiler. Raises StartError without one."""
        compiler = next((found for each in COMPILERS if (found := shutil.which(each))), None)
        if compiler is None:
            raise StartError("The benchmark needs a C compiler (Debian: apt-get install gcc).")
        program = self.folder / name
        flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra"]
        subprocess.run([compiler, *flags, "-o", program, NATIVE / f"{name}.c"], check=True)
        return program

    def command(self, name: str, argv: list[str], environment: dict[str, str], **more: object):
        """A command of this folder: its log is there, its working directory is the project."""
        return Command(
            name=name,
            argv=tuple(argv),
            log_path=self.var.logs / f"{name}.log",
            environment=environment,
            working_dir=PROJECT,
            **more,
        )

    def run(self, name: str, argv: list[str], environment: dict[str, str], seconds: float) -> None:
        run_to_end(self.command(name, argv, environment), seconds=seconds, pause=time.sleep)

    def start(self, command: Command, is_ready: Callable[[Child], bool]) -> Child:
        """Start it and wait until it is ready; it ends with the workshop. Raises StartError."""
        child = Child(command)
        child.start()
        self.at_end(lambda: child.stop(STOP_SECONDS))
        deadline = time.monotonic() + READY_SECONDS
        while not is_ready(child):
            if not child.is_running():
                raise failure(child)
            if time.monotonic() > deadline:
                child.stop(STOP_SECONDS)
                raise StartError(f"{command.name} was not ready in {READY_SECONDS:.0f} s.")
            time.sleep(POLL_SECONDS)
        return child

    def vendor(self, program: Path) -> tuple[Child, int]:
        with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener:
            descriptor, port = listener.fileno(), listener.getsockname()[1]
            argv = [str(program), str(descriptor)]
            command = self.command("vendor", argv, {}, inherited_fds=(descriptor,))
            return self.start(command, lambda _: True), port

    def application(
        self, name: str, application: str, environment: dict[str, str]
    ) -> tuple[Child, int]:
        """An ASGI application in one process, served just as `make run` serves the gateway."""
        with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener:
            descriptor, port = listener.fileno(), listener.getsockname()[1]
            argv = [sys.executable, "-m", "gateway.supervisor.serve", str(descriptor), application]
            command = self.command(name, argv, environment, inherited_fds=(descriptor,))
            return self.start(command, lambda child: serve.READY_LINE in child.output()), port


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 0.2):
            return True
    except OSError:
        return False


def plain_environment() -> dict[str, str]:
    """For programs that are not ours: where programs are, and no proxy between us and loopback."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "NO_PROXY": "*", "no_proxy": "*", "PYTHONUNBUFFERED": "1"}


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
