import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.supervisor.identity import Identity, launch_argv, same
from gateway.supervisor.launch import EXIT_UNUSABLE

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
ASK_WHO = "import os; print(os.getpid(), os.geteuid(), os.access('/', os.R_OK))"
# A parent that starts a child through the launcher, tells its number, and waits to be killed.
PARENT = """
import subprocess, sys
from gateway.supervisor.identity import launch_argv, same
command = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
argv = launch_argv(command, identity=same(), stop_signal=int(sys.argv[1]))
child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


def run(identity: Identity, command: list[str], reach: Path | None = None):
    argv = launch_argv(command, identity=identity, reach=reach)
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def who(identity: Identity) -> int:
    done = run(identity, [sys.executable, "-c", ASK_WHO])
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[1])


def test_the_same_identity_is_kept():
    assert who(same()) == os.geteuid()


def test_the_command_takes_over_the_number_of_its_launcher():
    argv = launch_argv([sys.executable, "-c", ASK_WHO], identity=same())
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        words, _ = child.communicate()
    assert int(words.split()[0]) == child.pid


def test_another_identity_hides_root_or_is_refused():
    for identity in (Identity("namespace", 1, 1), Identity("drop", NOBODY, NOBODY)):
        if IS_ROOT:
            assert who(identity) == identity.uid
        elif identity.kind == "drop":
            done = run(identity, [sys.executable, "-c", ASK_WHO])
            assert done.returncode == EXIT_UNUSABLE


def test_a_file_made_in_a_namespace_belongs_to_the_real_user(tmp_path):
    identity = Identity("namespace", 1, 1) if IS_ROOT else same()
    path = tmp_path / "made"
    done = run(identity, [sys.executable, "-c", f"open({str(path)!r}, 'w')"])
    assert done.returncode == 0
    assert path.stat().st_uid == os.geteuid()


def test_a_dropped_identity_still_enters_closed_folders(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    identity = Identity("drop", NOBODY, NOBODY) if IS_ROOT else same()
    done = run(identity, [sys.executable, "-c", ASK_WHO], reach=closed)
    assert done.returncode == 0, done.stderr


def test_a_folder_that_is_not_there_is_reported(tmp_path):
    done = run(same(), [sys.executable, "-c", ASK_WHO], reach=tmp_path / "none")
    assert done.returncode == EXIT_UNUSABLE
    assert "No such file or directory" in done.stderr


def test_a_program_that_is_not_there_is_reported():
    done = run(same(), ["/nonexistent/program"])
    assert done.returncode == EXIT_UNUSABLE
    assert done.stderr.startswith("cannot run /nonexistent/program")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_child_ends_with_a_parent_that_is_killed(number):
    argv = [sys.executable, "-c", PARENT, str(int(number))]
    parent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent:
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    try:
        readable, _, _ = select.select([child], [], [], 10)  # a pidfd is readable once it ended
        assert readable == [child]
    finally:
        os.close(child)


def test_a_child_whose_parent_is_gone_already_does_not_start():
    script = Path(sys.modules["gateway.supervisor.launch"].__file__)
    argv = [sys.executable, "-I", str(script), "15", "1", "same", "", sys.executable, "-c", ASK_WHO]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
