"""A pytest plugin: one PostgreSQL and one Valkey for the session, unless the environment has them.

Settings read the environment once, so it is complete as soon as this module is imported; the
servers it points to start in `pytest_configure`. From a conftest (`pytest_plugins`) that is early
enough only if pyproject.toml names no DJANGO_SETTINGS_MODULE, because pytest-django would load the
settings before any conftest; with `-p tests.embedded` it always is.

Under `-n` (pytest-xdist) the servers are the controlling process's; each of its workers has a
database and a Redis database number of its own there.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import pytest

if TYPE_CHECKING:
    from gateway.supervisor.embedded import EmbeddedServer

_stops = pytest.StashKey[list[Callable[[], object]]]()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _move_to_own_share(worker: str) -> None:
    """Point this process, worker gw0, gw1, …, at its own part of the controlling one's servers."""
    number = int(worker.removeprefix("gw"))
    database, redis = urlsplit(os.environ["DATABASE_URL"]), urlsplit(os.environ["REDIS_URL"])
    first = int(redis.path.strip("/") or 0)
    for name, parts, path in (
        ("DATABASE_URL", database, f"{database.path}_{worker}"),
        ("REDIS_URL", redis, f"/{first + 1 + number}"),
    ):
        os.environ[name] = urlunsplit(parts._replace(path=path))


def _complete_environment() -> list[tuple[str, int, str]]:
    """Fill in what the environment lacks; returns name, port and password of what is to start."""
    fernet_key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    os.environ.setdefault("FARTHING_SECRET_KEY", secrets.token_hex(32))
    os.environ.setdefault("FARTHING_KEY_PEPPER", secrets.token_hex(32))
    os.environ.setdefault("FARTHING_FERNET_KEYS", fernet_key)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        _move_to_own_share(worker)
    starts = []
    if "DATABASE_URL" not in os.environ:
        port, password = _free_port(), secrets.token_hex(16)
        os.environ["DATABASE_URL"] = f"postgresql://postgres:{password}@127.0.0.1:{port}/farthing"
        starts.append(("postgres", port, password))
    if "REDIS_URL" not in os.environ:
        port, password = _free_port(), secrets.token_hex(16)
        os.environ["REDIS_URL"] = f"redis://:{password}@127.0.0.1:{port}/0"
        starts.append(("valkey", port, password))
    return starts


_STARTS = _complete_environment()


def _start(folder: Path, name: str, port: int, password: str) -> EmbeddedServer:
    from gateway.supervisor import embedded

    start = {"postgres": embedded.start_postgres, "valkey": embedded.start_valkey}[name]
    log_path = folder / f"{name}.log"
    server = start(folder / name, password=password, log_path=log_path, port=port, durable=False)
    assert server.port == port
    return server


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    from django.conf import settings

    stops = config.stash[_stops] = []
    folder = Path(tempfile.mkdtemp(prefix="farthing-tests-"))
    stops.append(partial(shutil.rmtree, folder, ignore_errors=True))
    for name, port, password in _STARTS:
        stops.append(_start(folder, name, port, password).stop)
    # Loaded by now, they make pytest-django set Django up at the end of this very hook.
    assert settings.DATABASES["default"]["NAME"]


def pytest_unconfigure(config: pytest.Config) -> None:
    for stop in reversed(config.stash.get(_stops, [])):
        stop()
