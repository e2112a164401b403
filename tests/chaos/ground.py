"""What chaos is made in: everything that `make run` starts, in a folder of its own.

The supervisor starts again what is killed, as it does for everybody. PostgreSQL is durable here:
`fsync` and `synchronous_commit` are on.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.stack import ROOT, until

START_SECONDS = 180.0
STOP_SECONDS = 30.0
DEAD_AFTER_S = 6
LONG_MODEL = "chaos-long"
LONG = """
  # Longer than the pause between two check-points.
  - name: chaos-long
    family: qwen2.5
    routes:
      - {vendor: benchecho, vendor_model: echo-chunks-120-50}
    prices:
      - {input: 0.15, output: 0.60}
"""
OURS = ("DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE")


@dataclass
class Ground:
    var: Path
    supervisor: subprocess.Popen | None = None

    @property
    def journal(self) -> Path:
        return self.var / "journal"

    def start(self) -> None:
        self.var.mkdir(parents=True, exist_ok=True)
        catalog = self.var / "chaos.yaml"
        catalog.write_text((ROOT / "gateway/catalog/demo.yaml").read_text() + LONG)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in OURS and not name.startswith("FARTHING_")
        }
        environment = {
            **inherited,
            "VAR": str(self.var),
            "PORT": "0",
            "WORKERS": "2",
            "CATALOG": str(catalog),
            "BENCHECHO_JOURNAL": str(self.journal),
            "FARTHING_DEAD_AFTER_S": str(DEAD_AFTER_S),
        }
        with (self.var / "supervisor.log").open("ab") as log:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-m", "gateway.supervisor"],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )
        until(self._is_ready, START_SECONDS)
        self._set_up_django()

    def stop(self) -> None:
        if self.supervisor is None or self.supervisor.poll() is not None:
            return
        self.supervisor.send_signal(signal.SIGTERM)
        try:
            self.supervisor.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            self.supervisor.wait()

    def _is_ready(self) -> bool:
        if self.supervisor.poll() is not None:
            raise AssertionError((self.var / "supervisor.log").read_text()[-3000:])
        return (self.var / "ready.json").exists()

    def _set_up_django(self) -> None:
        """This process makes tenants and reads the books as any command does."""
        secrets = json.loads((self.var / "secrets.json").read_text())
        os.environ |= {
            "DATABASE_URL": self.ready["database_url"],
            "REDIS_URL": self.ready["redis_url"],
            "DJANGO_SETTINGS_MODULE": "gateway.settings",
            "FARTHING_SECRET_KEY": secrets["secret_key"],
            "FARTHING_KEY_PEPPER": secrets["key_pepper"],
            "FARTHING_FERNET_KEYS": secrets["fernet_key"],
            "FARTHING_LOG_LEVEL": "WARNING",
        }
        import django

        django.setup()

    @property
    def ready(self) -> dict[str, Any]:
        return json.loads((self.var / "ready.json").read_text())

    @property
    def base_url(self) -> str:
        return f"{self.ready['base_url']}/v1"

    def process(self, name: str) -> psutil.Process | None:
        """A child of our supervisor, and nobody else's; None while it is not there."""
        pid = self.ready["pids"].get(name)
        try:
            found = psutil.Process(pid)
            return found if found.ppid() == self.supervisor.pid else None
        except (psutil.NoSuchProcess, TypeError):
            return None

    def name_of(self, pid: int) -> str:
        """As the gateway process with this id is called in its table."""
        return f"{socket.gethostname()}:{pid}"

    def count(self, query: str, *values: Any) -> int | None:
        """One number; None while PostgreSQL does not answer."""
        try:
            with psycopg.connect(self.ready["database_url"], connect_timeout=2) as connection:
                connection.execute("SET statement_timeout = '3s'")
                return connection.execute(query, values).fetchone()[0]
        except psycopg.Error:
            return None
