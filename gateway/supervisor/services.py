"""The commands of Farthing's own processes."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from gateway.supervisor import serve
from gateway.supervisor.options import Options
from gateway.supervisor.processes import Command
from gateway.supervisor.state import Secrets, Var

PROJECT = Path(__file__).resolve().parents[2]
CELERY_PROCESSES = 2
CELERY_READY = " ready."
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Service:
    """A command, and the words in its log that say it is at work ("" for none)."""

    command: Command
    ready_words: str = ""


def child_environment(
    secrets: Secrets, database_url: str, redis_url: str, spool_dir: str
) -> dict[str, str]:
    """Ours, and what settings need; a secret that is already in ours wins over the one kept."""
    kept = {
        "FARTHING_SECRET_KEY": secrets.secret_key,
        "FARTHING_KEY_PEPPER": secrets.key_pepper,
        "FARTHING_FERNET_KEYS": secrets.fernet_key,
    }
    given = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "DJANGO_SETTINGS_MODULE": "gateway.settings",
        "PYTHONUNBUFFERED": "1",
    }
    return {**kept, "FARTHING_SPOOL_DIR": spool_dir, **os.environ, **given}


@dataclass(frozen=True, slots=True)
class Services:
    """Builds commands that share one environment and one folder of logs."""

    options: Options
    var: Var
    environment: dict[str, str]

    def migrate(self) -> Command:
        return self._python("migrate", "manage.py", "migrate", "--no-input")

    def seed_demo(self, benchecho_url: str) -> Command:
        """Its standard output is one JSON object; it finds what it made last time in its state."""
        arguments = ["--benchecho-url", benchecho_url, "--state", str(self.var.demo)]
        if self.options.catalog is not None:
            arguments += ["--catalog", str(self.options.catalog)]
        return self._python("seed_demo", "manage.py", "seed_demo", *arguments)

    def benchecho(self, port: int) -> Service:
        bind = ("--host", LOOPBACK, "--port", str(port))
        quiet = ("--no-access-log", "--lifespan", "off", "--timeout-graceful-shutdown", "1")
        application = "gateway.benchecho.app:application"
        arguments = ("-m", "uvicorn", application, *bind, *quiet)
        return Service(self._python("benchecho", *arguments))

    def worker(self) -> Service:
        arguments = ("--concurrency", str(CELERY_PROCESSES), "--without-gossip", "--without-mingle")
        words = ("-m", "celery", "-A", "gateway.celery", "worker", "--loglevel", "INFO", *arguments)
        return Service(self._python("worker", *words), CELERY_READY)

    def beat(self) -> Service:
        schedule = ("--schedule", str(self.var.folder / "beat-schedule"), "--pidfile", "")
        words = ("-m", "celery", "-A", "gateway.celery", "beat", "--loglevel", "INFO", *schedule)
        return Service(self._python("beat", *words))

    def gateway(self, number: int, listening_fd: int) -> Service:
        words = ("-m", "gateway.supervisor.serve", str(listening_fd), "gateway.asgi:application")
        command = self._python(f"gateway-{number}", *words, inherited_fds=(listening_fd,))
        return Service(command, serve.READY_LINE)

    def _python(self, name: str, *arguments: str, inherited_fds: tuple[int, ...] = ()) -> Command:
        return Command(
            name=name,
            argv=(sys.executable, *arguments),
            log_path=self.var.logs / f"{name}.log",
            environment=self.environment,
            inherited_fds=inherited_fds,
            working_dir=PROJECT,
        )
