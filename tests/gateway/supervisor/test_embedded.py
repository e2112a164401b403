"""The real servers, each started once for this file where a test does not need its own start."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import redis

from gateway.supervisor import identity
from gateway.supervisor.embedded import (
    EmbeddedPostgres,
    EmbeddedValkey,
    free_port,
    start_postgres,
    start_valkey,
)
from gateway.supervisor.errors import StartError, StopRequested
from gateway.supervisor.identity import launch_argv
from gateway.supervisor.services import PROJECT

NOBODY = 65534
AS_PLAIN_USER = """
import sys
from pathlib import Path
import psycopg
from gateway.supervisor.embedded import start_postgres
folder = Path(sys.argv[1])
server = start_postgres(folder / "data", password="one", log_path=folder / "log", durable=False)
with psycopg.connect(server.url) as connection:
    print(connection.execute("SELECT 1").fetchone())
server.stop()
"""


def postgres(folder: Path, **changes) -> EmbeddedPostgres:
    fields = {"password": "one", "log_path": folder / "logs" / "postgres.log"}
    return start_postgres(folder / "data", **{**fields, **changes})


def valkey(folder: Path, **changes) -> EmbeddedValkey:
    fields = {"password": "one", "log_path": folder / "logs" / "valkey.log"}
    return start_valkey(folder / "data", **{**fields, **changes})


def ownership(path: Path) -> list[tuple[int, int, int]]:
    """Of the folder and everything above it."""
    found = [entry.stat() for entry in (path, *path.parents)]
    return [(entry.st_mode, entry.st_uid, entry.st_gid) for entry in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    closed = tmp_path_factory.mktemp("closed")
    closed.chmod(0o700)
    inner = closed / "with a space"
    inner.mkdir(mode=0o700)
    return inner


@pytest.fixture(scope="module")
def before(folder):
    return ownership(folder)


@pytest.fixture(scope="module")
def server(folder, before):
    started = postgres(folder)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def cache(folder):
    started = valkey(folder / "cache")
    yield started
    started.stop()


def test_postgres_answers_durably_at_its_url(server):
    with psycopg.connect(server.url) as connection:
        shown = [
            connection.execute(f"SHOW {name}").fetchone()[0]
            for name in ("server_version_num", "fsync", "synchronous_commit", "server_encoding")
        ]
        assert shown[0].startswith("18")
        assert shown[1:] == ["on", "on", "UTF8"]
        assert connection.info.dbname == "farthing"


def test_nothing_above_the_data_changes_hands(server, folder, before):
    assert ownership(folder) == before
    assert (folder / "data").stat().st_mode & 0o777 == 0o700


def test_postgres_wants_its_password(server):
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.url.replace(":one@", ":two@"))


def test_a_second_server_on_the_same_data_is_refused(server, folder):
    with pytest.raises(StartError) as refusal:
        postgres(folder)
    assert str(refusal.value) == (
        f"A PostgreSQL server (process {server.child.pid}) already runs on {folder / 'data'}; "
        "stop it first."
    )


def test_what_is_committed_survives_kill_nine_also_where_the_lock_file_names_another(tmp_path):
    first = postgres(tmp_path)
    with psycopg.connect(first.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    first.kill()
    # As after a reboot: the number that the lock file names was given to somebody else.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        lock = tmp_path / "data" / "postmaster.pid"
        _, *rest = lock.read_text().splitlines(keepends=True)
        lock.write_text("".join([f"{other.pid}\n", *rest]))
        second = postgres(tmp_path, port=first.port)
        other.communicate(b"\n")
    try:
        assert second.url == first.url
        with psycopg.connect(second.url) as connection:
            assert connection.execute("SELECT answer FROM kept").fetchall() == [(42,)]
    finally:
        second.stop()
    with pytest.raises(StartError) as refusal:
        postgres(tmp_path, password="two")
    assert str(refusal.value) == (
        "PostgreSQL refuses our password: its data folder and the secrets beside it are not of "
        "one piece."
    )


def test_a_stop_in_the_middle_of_the_first_start_leaves_nothing_behind(tmp_path):
    def pause(_seconds: float) -> None:
        raise StopRequested

    with pytest.raises(StopRequested):
        postgres(tmp_path, pause=pause)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_where_namespaces_are_forbidden_only_the_data_changes_hands(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "_works", lambda who, *_: who.kind == "drop")
    tmp_path.chmod(0o700)
    above = ownership(tmp_path)
    started = postgres(tmp_path, durable=False)
    try:
        status = Path(f"/proc/{started.child.pid}/status").read_text()
        owner = (tmp_path / "data").stat().st_uid
        assert f"Uid:\t{owner}\t{owner}\t{owner}\t{owner}\n" in status
        assert owner != 0
        assert ownership(tmp_path) == above
    finally:
        started.stop()


def test_a_plain_user_starts_it_as_oneself(tmp_path):
    who = identity.Identity("drop", NOBODY, NOBODY) if os.geteuid() == 0 else identity.same()
    os.chown(tmp_path, who.uid, who.gid)
    argv = launch_argv([sys.executable, "-c", AS_PLAIN_USER, str(tmp_path)], identity=who)
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("(1,)\n", "")
    assert (tmp_path / "data").stat().st_uid == who.uid


def test_data_of_another_version_is_refused_untouched(tmp_path):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "PG_VERSION").write_text("17\n")
    with pytest.raises(StartError) as refusal:
        postgres(tmp_path)
    assert str(refusal.value) == (
        f"{data_dir} was made by PostgreSQL 17 and this is 18; dump it with the old version, or "
        "choose another folder with VAR."
    )
    assert [path.name for path in data_dir.iterdir()] == ["PG_VERSION"]


def test_a_folder_that_is_no_database_is_refused_untouched(tmp_path):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "letter.txt").write_text("mine")
    with pytest.raises(StartError) as refusal:
        postgres(tmp_path)
    assert str(refusal.value) == (
        f"{data_dir} is not a PostgreSQL data folder; move it away, or choose another folder "
        "with VAR."
    )
    assert (data_dir / "letter.txt").read_text() == "mine"


def test_a_broken_data_folder_is_one_sentence_in_the_servers_words(tmp_path):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "PG_VERSION").write_text("18\n")
    (data_dir / "postgresql.conf").touch()
    with pytest.raises(StartError) as refusal:
        postgres(tmp_path)
    sentence = str(refusal.value)
    assert sentence.startswith("PostgreSQL did not start: ")
    assert "could not find the database system" in sentence
    assert refusal.value.details == ()


def test_a_taken_port_is_passed_over(server):
    taken = server.port
    with socket.create_connection(("127.0.0.1", taken)):
        assert free_port(taken) != taken


def test_a_free_port_is_taken_as_wished():
    wished = free_port()
    assert free_port(wished) == wished


def test_valkey_answers_at_its_url_and_wants_its_password(cache):
    with redis.Redis.from_url(cache.url) as client:
        assert client.ping() is True
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    with (
        redis.Redis.from_url(cache.url.replace(":one@", ":two@")) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


def test_the_file_with_valkeys_password_is_private(cache, folder):
    config = folder / "cache" / "data" / "valkey.conf"
    assert config.stat().st_mode & 0o777 == 0o600
    assert "requirepass one\n" in config.read_text()


def test_what_valkey_holds_survives_a_restart(tmp_path):
    first = valkey(tmp_path)
    with redis.Redis.from_url(first.url) as client:
        client.set("kept", "42")
    first.stop()
    second = valkey(tmp_path, port=first.port)
    try:
        assert second.url == first.url
        with redis.Redis.from_url(second.url) as client:
            assert client.get("kept") == b"42"
    finally:
        second.stop()


def test_valkeys_folder_that_is_a_file_is_one_sentence(tmp_path):
    (tmp_path / "data").touch()
    with pytest.raises(StartError) as refusal:
        valkey(tmp_path)
    assert str(refusal.value).startswith(f"The data folder {tmp_path / 'data'} cannot be used: ")
