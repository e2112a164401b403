import os
import signal
import sys

import pytest

from gateway.supervisor import keeper
from gateway.supervisor.keeper import BACKOFF_SECONDS, HEALTHY_SECONDS, Kept
from gateway.supervisor.processes import Child, Command


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock that stands still until it is set."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(keeper.time, "monotonic", lambda: Clock.now)
    return Clock


@pytest.fixture
def said():
    return []


@pytest.fixture
def kept(tmp_path, clock, said):
    child = Child(
        Command(
            name="stand-in",
            argv=(sys.executable, "-c", "import signal; signal.pause()"),
            log_path=tmp_path / "stand-in.log",
            environment=dict(os.environ),
        )
    )
    child.start()
    yield Kept(child, said.append)
    child.kill()


def kill(kept: Kept) -> int:
    pid = kept.child.pid
    os.kill(pid, signal.SIGKILL)
    while kept.child.is_running():
        pass
    return pid


def test_a_child_that_runs_is_left_alone(kept, said):
    pid = kept.child.pid
    assert kept.tend() is False
    assert (kept.child.pid, said) == (pid, [])


def test_a_killed_child_is_started_again_at_once_and_told_in_words(kept, said):
    old = kill(kept)
    assert kept.tend() is True
    assert kept.child.is_running()
    assert said == [
        f"stand-in (process {old}) was ended by SIGKILL; starting it again.",
        f"stand-in runs again as process {kept.child.pid}.",
    ]


def test_one_that_keeps_ending_is_waited_for_ever_longer(kept, clock):
    for delay in (*BACKOFF_SECONDS, BACKOFF_SECONDS[-1]):
        kill(kept)
        if delay:
            assert kept.tend() is False
            clock.now += delay - 0.01
            assert kept.tend() is False
            clock.now += 0.01
        assert kept.tend() is True


def test_a_long_life_starts_the_count_again(kept, clock):
    kill(kept)
    kept.tend()
    clock.now += HEALTHY_SECONDS
    kill(kept)
    assert kept.tend() is True


def test_a_start_that_fails_is_told_and_tried_later(kept, clock, said):
    kill(kept)
    kept.child.command.log_path.unlink()
    kept.child.command.log_path.mkdir()
    assert kept.tend() is False
    assert said[-1].startswith("stand-in could not be started: [Errno 21]")
    kept.child.command.log_path.rmdir()
    clock.now += BACKOFF_SECONDS[1]
    assert kept.tend() is False
    clock.now += BACKOFF_SECONDS[1]
    assert kept.tend() is True
