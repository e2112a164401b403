"""A running Farthing for tests: real gateway, real benchecho, real Celery worker, real stores.

The processes share the test database with the tests, so a test makes its tenants with the ORM
and calls them over HTTP. Started once a session, by those tests only that ask for `stack`.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.supervisor.serve import BACKLOG, READY_LINE

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 60.0
POLL_SECONDS = 0.02


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Ask until the answer is true, and return it; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {condition}")
        pause.wait(POLL_SECONDS)


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
        return True
    return False


@dataclass
class Process:
    """One program of ours, with its log at hand."""

    arguments: list[str]
    environment: dict[str, str]
    log: Path
    popen: subprocess.Popen | None = None
    inherited_fds: tuple[int, ...] = ()

    def start(self) -> "Process":
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                self.arguments,
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
                pass_fds=self.inherited_fds,
            )
        return self

    def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()

    def stop(self, seconds: float = 15.0) -> int:
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.popen.returncode

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Stack:
    folder: Path
    environment: dict[str, str]
    benchecho_url: str = ""
    base_url: str = ""
    processes: list[Process] = field(default_factory=list)

    def run(
        self, name: str, *arguments: str, inherited_fds: tuple[int, ...] = (), **environment: str
    ) -> Process:
        process = Process(
            [sys.executable, "-m", *arguments],
            {**self.environment, **environment},
            self.folder / f"{name}.log",
            inherited_fds=inherited_fds,
        )
        self.processes.append(process.start())
        return process

    def serve(self, name: str, application: str, **environment: str) -> tuple[Process, str]:
        """An application as `make run` serves it, on a free port."""
        with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener:
            descriptor, port = listener.fileno(), listener.getsockname()[1]
            arguments = ("gateway.supervisor.serve", str(descriptor), application)
            process = self.run(name, *arguments, inherited_fds=(descriptor,), **environment)

        def is_up() -> bool:
            if process.popen.poll() is not None:
                raise AssertionError(f"{name} ended:\n{process.text()[-3000:]}")
            return READY_LINE in process.text()

        until(is_up, START_SECONDS)
        return process, f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.stop()


@pytest.fixture(scope="session")
def stack(
    django_db_setup, django_db_blocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    from django.conf import settings
    from django.db import connections
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(settings.DATABASE_URL)
    name = connections["default"].settings_dict["NAME"]
    login = f"{parts['user']}:{parts['password']}@" if parts.get("password") else ""
    url = f"postgresql://{login}{parts['host']}:{parts['port']}/{name}"
    stack = Stack(
        tmp_path_factory.mktemp("stack"),
        {**os.environ, "DATABASE_URL": url, "PYTHONWARNINGS": "ignore", "WORKERS": "1"},
    )
    try:
        _, benchecho_url = stack.serve("benchecho", "gateway.benchecho.app:application")
        stack.benchecho_url = f"{benchecho_url}/v1"
        with django_db_blocker.unblock():
            _demo_catalog(stack.benchecho_url)
        _, stack.base_url = stack.serve("gateway", "gateway.asgi:application")
        worker = stack.run(
            "worker",
            *("celery", "-A", "gateway.celery", "worker", "--pool", "solo", "--loglevel", "INFO"),
            *("--without-gossip", "--without-mingle"),
        )
        until(lambda: "ready." in worker.text(), START_SECONDS)
        yield stack
    finally:
        stack.stop()


def _demo_catalog(benchecho_url: str) -> None:
    from gateway.catalog.apply import apply_file

    apply_file(
        ROOT / "gateway/catalog/demo.yaml",
        actor="tests",
        environment={"BENCHECHO_URL": benchecho_url},
    )
