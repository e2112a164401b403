"""The life of one `make run`, with a small project in place of ours (see conftest.py)."""

import http.client
import os
import signal
import socket
import time
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from tests.gateway.supervisor.conftest import LAST_LINE, Run
from tests.stack import until

ENDED_WITHIN_SECONDS = 10.0
NAMES = ["PostgreSQL", "Valkey", "benchecho", "gateway-1", "gateway-2", "worker", "beat"]


@pytest.fixture(scope="module")
def run(project, tmp_path_factory):
    with project.run(tmp_path_factory.mktemp("run") / "var", WORKERS="2") as started:
        started.said = started.read_until(LAST_LINE)
        yield started


def answer(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as response:
        return response.read()


@contextmanager
def open_stream(base_url: str):
    """A response that has begun and does not end by itself."""
    with closing(http.client.HTTPConnection(base_url.removeprefix("http://"))) as connection:
        connection.request("GET", "/stream")
        with connection.getresponse() as response:
            assert response.read(4) == b"open"
            yield


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def kill(run: Run, name: str) -> None:
    """As `kill -9` does; returns when it runs again."""
    os.kill(run.ready()["pids"][name], signal.SIGKILL)
    run.read_until(f"{name} runs again as process")


def test_its_progress_is_told_in_words(run):
    assert run.said[:6] == [
        "Starting PostgreSQL …",
        "Starting Valkey …",
        "Applying migrations …",
        "Starting benchecho …",
        "Filling in the demo …",
        "Starting gateway, worker and beat …",
    ]
    assert "Farthing is ready." in run.said


def test_what_programs_need_is_in_a_private_file(run):
    ready = run.ready()
    assert sorted(ready) == [
        "api_key",
        "base_url",
        "benchecho_url",
        "database_url",
        "pids",
        "redis_url",
        "staff",
        "tenant",
        "test_key",
    ]
    assert list(ready["pids"]) == NAMES
    assert (run.var / "ready.json").stat().st_mode & 0o777 == 0o600


def test_everything_named_there_answers(run):
    ready = run.ready()
    assert answer(ready["base_url"] + "/v1/models") == b'{"data": [{"id": "echo"}]}'
    assert answer(ready["benchecho_url"] + "/models").startswith(b'{"object":"list"')
    with psycopg.connect(ready["database_url"]) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with redis.Redis.from_url(ready["redis_url"]) as client:
        assert client.ping() is True


def test_only_loopback_is_listened_on(run):
    port = int(run.ready()["base_url"].rpartition(":")[2])
    with Path("/proc/net/tcp").open() as table:
        listening = [line.split() for line in table if f":{port:04X} 00000000:0000 0A" in line]
    assert [row[1] for row in listening] == [f"0100007F:{port:04X}"]


def test_both_gateway_processes_answer_on_one_port(run):
    ready = run.ready()
    wanted = {str(ready["pids"][name]).encode() for name in ("gateway-1", "gateway-2")}
    found = set()
    while found != wanted:
        found.add(answer(ready["base_url"] + "/pid"))
    assert found == wanted


def test_a_second_run_on_the_same_folder_is_refused_in_one_sentence(run, project):
    with project.run(run.var) as second:
        words = second.process.stdout.read()
    assert words == (
        f"Another Farthing (process {run.process.pid}) runs on {run.var}: stop it, or choose "
        "another folder with VAR.\n"
    )
    assert second.process.returncode == 1
    assert run.ready()


def test_a_taken_port_is_refused_in_one_sentence(project, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        with project.run(tmp_path / "var", PORT=port) as refused:
            words = refused.process.stdout.read()
    assert words == f"Port {port} on 127.0.0.1 is taken: choose another one with PORT.\n"
    assert refused.process.returncode == 1
    assert not (tmp_path / "var" / "ready.json").exists()


@pytest.mark.parametrize("name", ["gateway-1", "benchecho", "worker", "beat"])
def test_a_killed_process_is_started_again(run, name):
    before = run.ready()
    kill(run, name)
    while (after := run.ready())["pids"] == before["pids"]:
        pass
    changed = [key for key in NAMES if after["pids"][key] != before["pids"][key]]
    assert changed == [name]
    assert answer(after["base_url"] + "/v1/models") == b'{"data": [{"id": "echo"}]}'


def test_a_killed_database_comes_back_at_the_same_address_with_its_rows(run):
    url = run.ready()["database_url"]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    kill(run, "PostgreSQL")
    while True:
        try:
            with psycopg.connect(url) as connection:
                assert connection.execute("SELECT answer FROM kept").fetchall() == [(42,)]
                return
        except psycopg.OperationalError:
            continue


def test_a_killed_run_is_made_up_for_and_a_signal_ends_the_next_in_time(project, tmp_path):
    with project.run(tmp_path / "var") as first:
        first.read_until(LAST_LINE)
        before = first.ready()
        with redis.Redis.from_url(before["redis_url"]) as client:
            client.set("kept", "42")
        first.stop(signal.SIGKILL)
    with project.run(tmp_path / "var") as second:
        second.read_until(LAST_LINE)
        after = second.ready()
        until(lambda: gone([*before["pids"].values()]))
        for name in ("database_url", "redis_url", "benchecho_url"):
            assert after[name] == before[name]
        with redis.Redis.from_url(after["redis_url"]) as client:
            assert client.get("kept") == b"42"
        with open_stream(after["base_url"]):
            asked_at = time.monotonic()
            said = second.stop(signal.SIGINT)
            assert time.monotonic() - asked_at < ENDED_WITHIN_SECONDS
    assert said[-2:] == ["Stopping …", f"Everything has ended; the data stays in {second.var}."]
    assert second.process.returncode == 0
    assert gone([*after["pids"].values()])
    assert not (second.var / "ready.json").exists()


def test_a_failing_migration_shows_its_last_words_and_leaves_nothing_running(project, tmp_path):
    with project.run(tmp_path / "var", BREAK_MIGRATE="1") as run:
        lines = run.process.stdout.read().splitlines()
    assert run.process.returncode == 1
    log = tmp_path / "var" / "logs" / "migrate.log"
    assert lines[-1] == f"migrate failed: ValueError: no such table (see {log})."
    assert lines[-2] == "  | ValueError: no such table"
    assert not (tmp_path / "var" / "postgres" / "postmaster.pid").exists()


def test_addresses_of_others_keep_our_servers_off_and_a_signal_ends_half_a_start(
    run, project, tmp_path
):
    urls = {name: run.ready()[name.lower()] for name in ("DATABASE_URL", "REDIS_URL")}
    with project.run(tmp_path / "var", **urls) as other:
        assert other.read_until("Applying migrations") == ["Applying migrations …"]
        assert other.stop()[-1] == f"Everything has ended; the data stays in {other.var}."
    assert other.process.returncode == 0
    assert not (tmp_path / "var" / "ready.json").exists()
    assert not (tmp_path / "var" / "postgres").exists()
