"""A pytest plugin: one PostgreSQL and one Valkey for the session, unless the environment has them.

Nothing of ours is imported before the environment is complete, since settings read it once. For
the same reason DJANGO_SETTINGS_MODULE is set here and not in pyproject.toml: pytest-django would
load the settings before this plugin is asked.
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

import pytest

if TYPE_CHECKING:
    from gateway.supervisor.embedded import EmbeddedServer

SETTINGS_MODULE = "gateway.settings"
_stops = pytest.StashKey[list[Callable[[], None]]]()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _set_environment() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", SETTINGS_MODULE)
    fernet_key = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    os.environ.setdefault("FARTHING_SECRET_KEY", secrets.token_hex(32))
    os.environ.setdefault("FARTHING_KEY_PEPPER", secrets.token_hex(32))
    os.environ.setdefault("FARTHING_FERNET_KEYS", fernet_key)


def _set_urls(folder: Path) -> list[Callable[[], EmbeddedServer]]:
    """Fill in what the environment lacks; returns what is to be started for it."""
    starts = []
    if "DATABASE_URL" not in os.environ:
        port, password = _free_port(), secrets.token_hex(16)
        os.environ["DATABASE_URL"] = f"postgresql://postgres:{password}@127.0.0.1:{port}/farthing"
        starts.append(partial(_start, "postgres", folder, port, password))
    if "REDIS_URL" not in os.environ:
        port, password = _free_port(), secrets.token_hex(16)
        os.environ["REDIS_URL"] = f"redis://:{password}@127.0.0.1:{port}/0"
        starts.append(partial(_start, "valkey", folder, port, password))
    return starts


def _start(name: str, folder: Path, port: int, password: str) -> EmbeddedServer:
    from gateway.supervisor import embedded

    start = {"postgres": embedded.start_postgres, "valkey": embedded.start_valkey}[name]
    log_path = folder / f"{name}.log"
    server = start(folder / name, password=password, log_path=log_path, port=port, durable=False)
    assert server.port == port
    return server


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    stops = config.stash[_stops] = []
    _set_environment()
    folder = Path(tempfile.mkdtemp(prefix="farthing-tests-"))
    stops.append(partial(shutil.rmtree, folder, ignore_errors=True))
    for start in _set_urls(folder):
        stops.append(start().stop)  # noqa: PERF401  # the first is stopped if the second fails
    _load_settings()


def _load_settings() -> None:
    """pytest-django sets Django up at the end of this hook if the settings are loaded by then."""
    from django.conf import settings

    assert settings.DATABASES["default"]["NAME"] == "farthing"


def pytest_unconfigure(config: pytest.Config) -> None:
    for stop in reversed(config.stash.get(_stops, [])):
        stop()
