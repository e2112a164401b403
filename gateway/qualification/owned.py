"""A server that is started for a check, and stopped after it."""

import os
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

START_S: Final = 120.0  # a large model is read from disk
POLL_S: Final = 0.1
ANSWER_S: Final = 2.0
STOP_S: Final = 10.0
# Farthing's own secrets are no business of a server that somebody else wrote.
OUR_VARIABLES: Final = ("FARTHING_", "DATABASE_URL", "REDIS_URL")


class ServerDidNotStartError(Exception):
    """The command cannot be run, ended, or did not answer in time."""


@dataclass(slots=True)
class OwnedServer:
    """`is_stopped` turns true once no process of it is left."""

    process: "subprocess.Popen[bytes]"
    is_stopped: bool = False


@contextmanager
def owned_server(command: str, base_url: str, *, start_s: float = START_S) -> Iterator[OwnedServer]:
    """Run the command (no shell) until the block ends. Raises ServerDidNotStartError.

    It is ready when `base_url` + `/models` answers anything but a 5xx.
    """
    server = OwnedServer(_start(command))
    try:
        _wait(server.process, f"{base_url.rstrip('/')}/models", start_s)
        yield server
    finally:
        server.is_stopped = _stop(server.process)


def _start(command: str) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603  # the operator's own command
            shlex.split(command),
            env=_foreign(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError, IndexError) as error:
        raise ServerDidNotStartError(f"{command!r} cannot be run: {error}.") from error


def _foreign(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if not name.startswith(OUR_VARIABLES)
    }


def _wait(process: "subprocess.Popen[bytes]", url: str, start_s: float) -> None:
    deadline_s = time.monotonic() + start_s
    while not _answers(url):
        if process.poll() is not None:
            raise ServerDidNotStartError(f"The server ended with code {process.returncode}.")
        if time.monotonic() > deadline_s:
            raise ServerDidNotStartError(f"The server did not answer within {start_s:g} s.")
        time.sleep(POLL_S)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S):  # noqa: S310  # the operator's own URL
            return True
    except urllib.error.HTTPError as error:
        with error:
            return error.code < HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, ValueError):
        return False


def _stop(process: "subprocess.Popen[bytes]") -> bool:
    """Politely, then not; with all that it has started."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        _signal(process, how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue
        _signal(process, signal.SIGKILL)
        return True
    return False


def _signal(process: "subprocess.Popen[bytes]", how: signal.Signals) -> None:
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        return
