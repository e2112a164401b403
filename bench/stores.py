"""PostgreSQL as durable as in production, Valkey, and databases made from one migrated template."""

import json
import shutil
import statistics
import sys
import time
from dataclasses import dataclass

import psycopg
from psycopg import sql

from bench.ground import Ground
from bench.workshop import Workshop
from gateway.supervisor.embedded import EmbeddedPostgres, start_postgres, start_valkey
from gateway.supervisor.services import child_environment
from gateway.supervisor.state import Secrets

MIGRATE_SECONDS = 180.0
SEED_SECONDS = 1_800.0
COMMITS = 200
SHOWN_SETTINGS = ("synchronous_commit", "fsync", "full_page_writes", "shared_buffers")


@dataclass(frozen=True, slots=True)
class Keys:
    """A database's API keys: one a tenant, those with limits of their own, the hot tenant's."""

    url: str
    keys: list[str]
    limited: list[str]
    hot: str


class Stores:
    """Everything starts empty: what an earlier run has written is thrown away."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._secrets: Secrets = workshop.var.secrets()
        self.postgres = self._start_postgres()
        self._redis_url = self._start_valkey()
        self._migrate()

    @property
    def postgres_pid(self) -> int:
        pid = self.postgres.child.pid
        assert pid is not None
        return pid

    def url(self, database: str) -> str:
        return self.postgres.url.rpartition("/")[0] + f"/{database}"

    def environment(self, database: str) -> dict[str, str]:
        """For one database's processes. What they spool is that database's, so it lies apart."""
        spool = str(self._workshop.folder / "spool" / database)
        kept = child_environment(self._secrets, self.url(database), self._redis_url, spool)
        return {**kept, "FARTHING_SPOOL_DIR": spool, "WORKERS": "1"}

    def database(self, ground: Ground) -> Keys:
        """A copy of the migrated template, filled in as `ground` says."""
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE template_bench")
            connection.execute(statement.format(sql.Identifier(ground.name)))
        output = self._workshop.folder / f"{ground.name}.keys.json"
        self._workshop.at_end(lambda: output.unlink(missing_ok=True))
        argv = [sys.executable, "-m", "bench.seed", ground.text(), str(output)]
        environment = self.environment(ground.name)
        self._workshop.run(f"seed-{ground.name}", argv, environment, SEED_SECONDS)
        return Keys(self.url(ground.name), **json.loads(output.read_text()))

    def settings(self) -> dict[str, str]:
        with psycopg.connect(self.postgres.url) as connection:
            found = {
                name: connection.execute(
                    sql.SQL("SHOW {}").format(sql.Identifier(name))
                ).fetchone()[0]
                for name in (*SHOWN_SETTINGS, "server_version")
            }
        version = found.pop("server_version")
        return {"PostgreSQL": version, **found}

    def commit_ms(self) -> float:
        """Median of a durable single-row commit, alone: the floor under every hold and settle."""
        times_ms = []
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE bench_commit (n integer)")
            for number in range(COMMITS):
                begun = time.perf_counter()
                connection.execute("INSERT INTO bench_commit VALUES (%s)", (number,))
                times_ms.append((time.perf_counter() - begun) * 1_000)
            connection.execute("DROP TABLE bench_commit")
        return statistics.median(times_ms)

    def _start_postgres(self) -> EmbeddedPostgres:
        folder = self._workshop.folder / "postgres"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self._workshop.folder / "spool", ignore_errors=True)
        server = start_postgres(
            folder,
            password=self._secrets.database_password,
            log_path=self._workshop.var.logs / "postgres.log",
        )
        self._workshop.at_end(lambda: shutil.rmtree(folder, ignore_errors=True))
        self._workshop.at_end(server.stop)
        return server

    def _start_valkey(self) -> str:
        folder = self._workshop.folder / "valkey"
        shutil.rmtree(folder, ignore_errors=True)
        server = start_valkey(
            folder,
            password=self._secrets.redis_password,
            log_path=self._workshop.var.logs / "valkey.log",
        )
        self._workshop.at_end(server.stop)
        return server.url

    def _migrate(self) -> None:
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE template_bench")
        argv = [sys.executable, "manage.py", "migrate", "--no-input"]
        environment = self.environment("template_bench")
        self._workshop.run("migrate", argv, environment, MIGRATE_SECONDS)
