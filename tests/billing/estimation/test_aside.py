import os
import signal
import sys
import threading

import pytest

from billing.estimation import count_prompt
from billing.estimation.aside import Aside, NotCountedError

SLEEPER = (sys.executable, "-c", "import sys; sys.stdin.buffer.read()")


def asked(text: str = "Compute 2+2. Answer briefly."):
    return {"messages": [{"role": "user", "content": text}]}


@pytest.fixture(scope="module")
def aside():
    made = Aside()
    yield made
    made.close()


@pytest.mark.parametrize("model", ["qwen2.5-coder", "claude-sonnet-4-5", "nobody-knows"])
def test_the_child_counts_as_we_do(aside, model: str) -> None:
    assert aside.count_prompt(asked(), model=model) == count_prompt(asked(), model=model)


def test_what_cannot_be_counted_does_not_end_the_child(aside) -> None:
    with pytest.raises(NotCountedError):
        aside.count_prompt([], model="gpt-4o")
    assert aside.count_prompt(asked(), model="gpt-4o").tokens > 0


def test_this_process_goes_on_while_megabytes_are_counted(aside) -> None:
    big = asked("A bound is a promise. " * 230_000)
    found = []
    asking = threading.Thread(
        target=lambda: found.append(aside.count_prompt(big, model="gpt-4o", within_s=60))
    )
    aside.count_prompt(asked(), model="gpt-4o")
    child = aside._child.pid
    os.kill(child, signal.SIGSTOP)
    try:
        asking.start()
        assert count_prompt(asked(), model="gpt-4o").tokens > 0
        assert asking.is_alive()
    finally:
        os.kill(child, signal.SIGCONT)
    asking.join()
    assert found == [count_prompt(big, model="gpt-4o")]


def test_a_child_that_takes_too_long_is_killed_and_replaced() -> None:
    stuck = Aside(SLEEPER)
    with pytest.raises(NotCountedError):
        stuck.count_prompt(asked(), model="gpt-4o", within_s=0.2)
    with pytest.raises(NotCountedError):
        stuck.count_prompt(asked(), model="gpt-4o", within_s=0.2)


def test_who_waits_too_long_for_others_is_told_so() -> None:
    stuck = Aside(SLEEPER)
    first = threading.Thread(target=_count_in_vain, args=(stuck,))
    first.start()
    while not stuck._lock.locked():
        pass
    with pytest.raises(NotCountedError, match="others"):
        stuck.count_prompt(asked(), model="gpt-4o", wait_s=0.05)
    first.join()


def _count_in_vain(stuck: Aside) -> None:
    with pytest.raises(NotCountedError):
        stuck.count_prompt(asked(), model="gpt-4o", within_s=0.5)
