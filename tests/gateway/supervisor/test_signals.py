import os
import signal
import subprocess
import sys

# In a process of its own: handlers and the wake-up pipe belong to a whole process.
PROGRAM = """
import os, signal, subprocess, sys, time
from gateway.supervisor.errors import StopRequested
from gateway.supervisor.signals import Signals
signals = Signals()
signals.install()
{body}
"""
WAIT = """
print("up", flush=True)
try:
    while True: signals.pause(60)
except StopRequested:
    print("asked")
"""
CHILD_ENDS = """
started = time.monotonic()
child = subprocess.Popen([sys.executable, "-c", ""])
signals.pause(60)
print(child.wait(), time.monotonic() - started < 60)
"""
ASKED_BEFORE = """
os.kill(os.getpid(), signal.SIGTERM)
for _ in range(2):
    try:
        signals.pause(60)
    except StopRequested:
        print("asked")
"""


def program(body: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(body=body)]


def test_each_stop_signal_is_noticed_in_the_wait():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with subprocess.Popen(program(WAIT), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "up\n"
            os.kill(process.pid, number)
            assert process.communicate()[0] == "asked\n"
        assert process.returncode == 0


def test_the_end_of_a_child_ends_the_wait():
    done = subprocess.run(program(CHILD_ENDS), capture_output=True, text=True, check=True)
    assert done.stdout == "0 True\n"


def test_once_asked_every_wait_says_so():
    done = subprocess.run(program(ASKED_BEFORE), capture_output=True, text=True, check=True)
    assert done.stdout == "asked\nasked\n"
