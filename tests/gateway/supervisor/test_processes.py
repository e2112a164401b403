import os
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from gateway.supervisor import processes
from gateway.supervisor.errors import StartError
from gateway.supervisor.processes import Child, Command, describe_exit, run_to_end

WAITS = "import signal, sys; print('up', flush=True); signal.pause()"
DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True: signal.pause()
"""
WITH_FAMILY = """
import os, signal
child = os.fork()
if child: print(child, flush=True)
signal.pause()
"""


def command(tmp_path: Path, source: str, **changes) -> Command:
    fields = {
        "name": "stand-in",
        "argv": (sys.executable, "-c", source),
        "log_path": tmp_path / "logs" / "stand-in.log",
        "environment": dict(os.environ),
    }
    return Command(**{**fields, **changes})


def started(wanted: Command) -> Child:
    child = Child(wanted)
    child.start()
    return child


def wait_for_output(child: Child) -> str:
    """Returns its first whole line; the test's own time-out bounds the wait."""
    while not child.output().endswith("\n"):
        assert child.is_running(), child.output()
    return child.output().strip()


def test_a_child_runs_until_it_is_asked_to_stop(tmp_path):
    child = started(command(tmp_path, WAITS))
    wait_for_output(child)
    assert child.is_running()
    assert child.exit_code() is None
    child.stop(10)
    assert not child.is_running()
    assert child.exit_code() == -signal.SIGTERM


def test_its_own_stop_signal_is_used(tmp_path):
    child = started(command(tmp_path, WAITS, stop_signal=signal.SIGUSR1))
    wait_for_output(child)
    child.stop(10)
    assert child.exit_code() == -signal.SIGUSR1


def test_one_that_does_not_listen_is_killed(tmp_path):
    child = started(command(tmp_path, DEAF))
    wait_for_output(child)
    child.stop(0.1)
    assert child.exit_code() == -signal.SIGKILL


def test_a_killed_child_takes_its_family_with_it(tmp_path):
    child = started(command(tmp_path, WITH_FAMILY))
    grandchild = os.pidfd_open(int(wait_for_output(child)))
    os.kill(child.pid, signal.SIGKILL)
    assert processes.wait_until_ended([child], 10)
    assert select.select([grandchild], [], [], 10)[0] == [grandchild]
    os.close(grandchild)


def test_a_child_does_not_hear_the_terminal(tmp_path):
    child = started(command(tmp_path, WAITS))
    assert os.getsid(child.pid) == child.pid
    assert os.getpgid(child.pid) != os.getpgrp()
    child.kill()


def test_it_starts_again_with_an_output_of_its_own(tmp_path):
    child = started(command(tmp_path, "print('first')"))
    assert processes.wait_until_ended([child], 10)
    child.command.environment["X"] = "1"
    child.start()
    assert processes.wait_until_ended([child], 10)
    assert child.output() == "first\n"
    assert child.command.log_path.read_text() == "first\nfirst\n"


def test_nothing_but_the_given_environment_is_passed_on(tmp_path):
    source = "import os; print(sorted(name for name in os.environ if name != 'LC_CTYPE'))"
    child = started(command(tmp_path, source, environment={"ONLY": "1"}))
    assert processes.wait_until_ended([child], 10)
    assert child.output() == "['ONLY']\n"


def test_a_program_of_ours_that_fails_shows_its_last_lines(tmp_path):
    wanted = command(tmp_path, "raise ValueError('no such thing')")
    with pytest.raises(StartError) as failure:
        run_to_end(wanted, seconds=30, pause=time.sleep)
    expected = f"stand-in failed: ValueError: no such thing (see {wanted.log_path})."
    assert str(failure.value) == expected
    assert failure.value.details[-1] == "ValueError: no such thing"


def test_a_program_of_others_that_fails_is_one_sentence(tmp_path):
    script = "echo hint; echo 'FATAL:  it is broken'; echo bye; exit 3"
    with pytest.raises(StartError) as failure:
        run_to_end(
            command(tmp_path, "", argv=("/bin/sh", "-c", script)), seconds=30, pause=time.sleep
        )
    assert str(failure.value).startswith("stand-in failed: FATAL:  it is broken (see ")
    assert failure.value.details == ()


def test_a_command_that_refuses_shows_all_its_words(tmp_path):
    source = (
        "print('CommandError: bad.yaml was not applied.\\nline 3: no price'); raise SystemExit(1)"
    )
    with pytest.raises(StartError) as failure:
        run_to_end(command(tmp_path, source), seconds=30, pause=time.sleep)
    expected = "stand-in failed: CommandError: bad.yaml was not applied (see "
    assert str(failure.value).startswith(expected)
    assert failure.value.details[-1] == "line 3: no price"


def test_a_program_that_fails_without_a_word_is_told_by_its_exit(tmp_path):
    with pytest.raises(StartError) as failure:
        run_to_end(command(tmp_path, "raise SystemExit(3)"), seconds=30, pause=time.sleep)
    assert "stand-in failed: ended with exit code 3 (see" in str(failure.value)


def test_a_full_disk_is_named_as_that(tmp_path):
    source = "print('could not write: No space left on device'); raise SystemExit(1)"
    wanted = command(tmp_path, source)
    with pytest.raises(StartError) as failure:
        run_to_end(wanted, seconds=30, pause=time.sleep)
    expected = f"stand-in stopped: the disk that holds {wanted.log_path.parent} is full."
    assert str(failure.value) == expected


def test_a_program_that_takes_too_long_is_ended(tmp_path):
    with pytest.raises(StartError) as failure:
        run_to_end(command(tmp_path, WAITS), seconds=0, pause=time.sleep)
    assert str(failure.value) == "stand-in took longer than 0 s and was ended."


def test_an_answer_does_not_reach_the_log(tmp_path):
    wanted = command(tmp_path, "import sys; print('secret'); print('noise', file=sys.stderr)")
    with (tmp_path / "answer").open("w+b") as answer:
        run_to_end(wanted, seconds=30, pause=time.sleep, stdout=answer)
    assert (tmp_path / "answer").read_text() == "secret\n"
    assert wanted.log_path.read_text() == "noise\n"


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "logs").write_text("a file where a folder should be")
    with pytest.raises(StartError) as failure:
        Child(command(tmp_path, WAITS)).start()
    assert str(failure.value).startswith("stand-in could not be started: [Errno ")


def test_a_log_that_has_grown_is_put_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "LOG_MAX_BYTES", 10)
    log = tmp_path / "some.log"
    log.write_text("x" * 10)
    processes.bound_log(log)
    assert log.exists()
    log.write_text("x" * 11)
    processes.bound_log(log)
    assert not log.exists()
    assert (tmp_path / "some.log.1").read_text() == "x" * 11


def test_only_the_end_of_a_long_output_is_read(tmp_path):
    child = started(command(tmp_path, "print('x' * 40_000); print('end')"))
    assert processes.wait_until_ended([child], 10)
    assert len(child.output()) == processes.LOG_TAIL_BYTES
    assert child.last_lines()[-1] == "end"


def test_an_exit_is_described_in_words():
    assert describe_exit(-9) == "was ended by SIGKILL"
    assert describe_exit(0) == "ended with exit code 0"
    assert describe_exit(None) == "is still running"
