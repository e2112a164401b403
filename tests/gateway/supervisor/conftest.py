"""A small project in place of ours, and a `make run` of it: what the supervisor does, quickly."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from gateway import benchecho, supervisor

MANAGE = """
import json, os, sys
if sys.argv[1] == "migrate" and os.environ.get("BREAK_MIGRATE"):
    raise ValueError("no such table")
if sys.argv[1] == "seed_demo":
    login = {"email": "someone@example.test", "password": "word"}
    print(json.dumps({"api_key": "one", "test_key": "two", "tenant": login, "staff": login}))
"""
ASGI = """
import asyncio, json, os
MODELS = json.dumps({"data": [{"id": "echo"}]}).encode()
async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/stream":
        await send({"type": "http.response.body", "body": b"open", "more_body": True})
        await asyncio.sleep(3600)
    body = str(os.getpid()).encode() if scope["path"] == "/pid" else MODELS
    await send({"type": "http.response.body", "body": body})
"""
CELERY = """
import os
from celery import Celery
app = Celery("stand-in", broker=os.environ["REDIS_URL"])
"""
LAST_LINE = "Ctrl-C ends everything."


@dataclass
class Run:
    """One `make run`; its words are read line by line, so nothing here waits by the clock."""

    process: subprocess.Popen
    var: Path

    def read_until(self, words: str) -> list[str]:
        """What was said up to the line that holds `words`."""
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if words in line:
                return lines
        raise AssertionError("it ended, saying:\n" + "\n".join(lines))

    def ready(self) -> dict[str, Any]:
        return json.loads((self.var / "ready.json").read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with self.process:
            self.process.terminate()

    def stop(self, number: int = signal.SIGTERM) -> list[str]:
        """What was said at the end."""
        self.process.send_signal(number)
        lines = self.process.stdout.read().splitlines()
        self.process.wait()
        return lines


@dataclass
class Project:
    folder: Path

    def run(self, var: Path, **environment: str) -> Run:
        """Embedded servers and a free port, unless `environment` says otherwise."""
        kept = {
            name: text
            for name, text in os.environ.items()
            if name not in {"DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"}
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway.supervisor"],
            cwd=self.folder,
            env={**kept, "PORT": "0", "VAR": str(var), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Run(process, var)


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Project:
    folder = tmp_path_factory.mktemp("project")
    gateway = folder / "gateway"
    for package in (supervisor, benchecho):
        source = Path(package.__file__).parent
        shutil.copytree(source, gateway / source.name, ignore=shutil.ignore_patterns("*.pyc"))
    files = {"__init__.py": "", "settings.py": "", "asgi.py": ASGI, "celery.py": CELERY}
    for name, text in files.items():
        (gateway / name).write_text(text)
    (folder / "manage.py").write_text(MANAGE)
    return Project(folder)
