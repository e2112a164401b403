import errno
import json
import os
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from cryptography.fernet import Fernet

from gateway.supervisor import state
from gateway.supervisor.embedded import free_port
from gateway.supervisor.errors import StartError
from gateway.supervisor.processes import Child, Command
from gateway.supervisor.state import Var, start_ticks, unusable

SLEEPER = "import signal; print('up', flush=True); signal.pause()"
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); input()"


@pytest.fixture
def var(tmp_path):
    opened = Var(tmp_path / "var")
    opened.open()
    yield opened
    opened.close()


def process(source: str) -> subprocess.Popen:
    started = subprocess.Popen(
        [sys.executable, "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert started.stdout.readline() == b"up\n"
    return started


def child_of(pid: int, tmp_path) -> Child:
    log_path = tmp_path / "log"
    child = Child(Command(name="stand-in", argv=(), log_path=log_path, environment={}))
    child._process = SimpleNamespace(pid=pid)
    return child


def test_the_folder_is_its_owners_alone(var):
    assert var.folder.stat().st_mode & 0o777 == 0o700
    assert (var.folder / "lock").stat().st_mode & 0o777 == 0o600


def test_a_second_run_on_the_same_folder_is_refused(var):
    with pytest.raises(StartError) as refusal:
        Var(var.folder).open()
    assert str(refusal.value) == (
        f"Another Farthing (process {os.getpid()}) runs on {var.folder}: stop it, or choose "
        "another folder with VAR."
    )


def test_a_folder_that_was_closed_can_be_opened_again(var):
    var.close()
    again = Var(var.folder)
    again.open()
    again.close()


def test_a_full_disk_is_one_sentence(tmp_path):
    with pytest.raises(StartError) as refusal:
        Var(tmp_path / "var").open(min_free_bytes=2**62)
    assert str(refusal.value).startswith(f"The disk that holds {tmp_path / 'var'} is full: ")
    assert str(refusal.value).endswith(" MB are free, 4398046511104 MB are needed.")


def test_a_folder_that_is_a_file_is_one_sentence(tmp_path):
    (tmp_path / "var").touch()
    with pytest.raises(StartError) as refusal:
        Var(tmp_path / "var").open()
    assert str(refusal.value) == (
        f"The data folder {tmp_path / 'var'} cannot be used ({tmp_path / 'var'}: File exists)."
    )


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_that_finds_no_room_names_the_disk(tmp_path, code):
    error = OSError(code, os.strerror(code), "some file")
    assert str(unusable(tmp_path, error)) == f"The disk that holds {tmp_path} is full."


def test_secrets_are_made_once_and_kept_private(var):
    first = var.secrets()
    assert (var.folder / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert var.secrets() == first
    assert Fernet(first.fernet_key.encode()).decrypt(Fernet(first.fernet_key).encrypt(b"x")) == b"x"
    kept = [getattr(first, name) for name in first.__slots__]
    assert len(set(kept)) == 5
    assert min(map(len, kept)) >= 43


@pytest.mark.parametrize("text", ["{", "[]", '{"secret_key": "x"}', '{"unknown": 1}'])
def test_broken_secrets_are_refused_and_not_replaced(var, text):
    path = var.folder / "secrets.json"
    path.write_text(text)
    with pytest.raises(StartError) as refusal:
        var.secrets()
    assert str(refusal.value) == f"{path} is broken; restore it, or choose another folder with VAR."
    assert path.read_text() == text


def test_a_port_is_the_same_as_last_time_if_it_is_free(var):
    port = free_port()
    var.keep_port("one", port)
    var.keep_port("two", free_port())
    assert var.port("one") == port
    with socket.create_server(("127.0.0.1", port)):
        assert var.port("one") != port


def test_orphans_are_ended_as_they_want_it(var, tmp_path):
    orphan = process(SLEEPER)
    with orphan:
        var.record([child_of(orphan.pid, tmp_path)])
        assert var.end_orphans() == 1
    assert orphan.returncode == -signal.SIGTERM


def test_an_orphan_that_does_not_listen_is_killed(var, tmp_path, monkeypatch):
    monkeypatch.setattr(state, "ORPHAN_SECONDS", 0.1)
    orphan = process(DEAF)
    with orphan:
        var.record([child_of(orphan.pid, tmp_path)])
        assert var.end_orphans() == 1
    assert orphan.returncode == -signal.SIGKILL


@pytest.mark.parametrize("change", ["start_ticks", "boot_id"])
def test_a_process_that_only_got_the_number_is_left_alone(var, tmp_path, change):
    stranger = process(SLEEPER)
    with stranger:
        var.record([child_of(stranger.pid, tmp_path)])
        noted = var.read("children.json")
        if change == "boot_id":
            noted["boot_id"] = "another"
        else:
            noted["children"][0]["start_ticks"] -= 1
        var.write("children.json", noted)
        assert var.end_orphans() == 0
        assert stranger.poll() is None
        stranger.kill()


def test_a_process_that_is_gone_is_no_orphan(var, tmp_path):
    gone = process(SLEEPER)
    var.record([child_of(gone.pid, tmp_path)])
    with gone:
        gone.kill()
    assert var.end_orphans() == 0


def test_the_first_run_has_no_orphans(var):
    assert var.end_orphans() == 0


def test_when_a_process_started_is_told_for_the_living_only():
    assert start_ticks(os.getpid()) > 0
    with process(SLEEPER) as ended:
        os.kill(ended.pid, signal.SIGKILL)
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert start_ticks(ended.pid) is None  # ended, if not yet buried
    assert start_ticks(ended.pid) is None


def test_what_is_written_can_be_read(var):
    var.write("some.json", {"a": [1]})
    assert json.loads((var.folder / "some.json").read_text()) == {"a": [1]}
    assert var.read("some.json") == {"a": [1]}
    assert var.read("none.json") == {}
