"""The gateway's end of the pipe, with a real scribe at the other, on the gateway's event loop."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from gateway.runtime import recorder as module
from gateway.runtime.recorder import Recorder
from tests.gateway.exchanges.said import a_record, stored
from tests.gateway.runtime.conftest import aside
from tests.stack import until

BOOT_S = 40.0  # a scribe loads all of Django, perhaps on a busy machine
pytestmark = pytest.mark.usefixtures("committed")


@pytest.fixture(autouse=True)
def scribes_database(monkeypatch, database_url) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setattr(module, "RESTART_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "DRAIN_S", BOOT_S)


@pytest.fixture
def run():
    def run(work: Callable[[Recorder], Awaitable[None]]) -> None:
        async def main() -> None:
            recorder = Recorder()
            async with asyncio.timeout(90):
                await recorder.start()
                await work(recorder)
                await recorder.close()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    return run


def test_an_orderly_stop_loses_nothing(run) -> None:
    said = [a_record() for _ in range(150)]

    async def work(recorder: Recorder) -> None:
        for record in said:
            recorder.put(record)

    run(work)
    assert stored(said) == 150


def test_a_scribe_that_dies_is_followed_by_another(run, caplog) -> None:
    said = [a_record() for _ in range(3)]

    async def work(recorder: Recorder) -> None:
        keeping = asyncio.create_task(recorder.run())
        first = recorder._process
        os.kill(first.pid, signal.SIGKILL)
        await first.wait()
        for record in said:
            recorder.put(record)
        await aside(until, lambda: stored(said) == 3, BOOT_S)
        assert recorder._process.pid != first.pid
        await recorder.close()
        await keeping

    with caplog.at_level(logging.ERROR):
        run(work)
    assert "The scribe has died; a new one is started" in caplog.messages


def test_a_stop_while_no_scribe_lives_loses_nothing(run) -> None:
    said = [a_record() for _ in range(3)]

    async def work(recorder: Recorder) -> None:
        os.kill(recorder._process.pid, signal.SIGKILL)
        await recorder._process.wait()
        for record in said:
            recorder.put(record)

    run(work)
    assert stored(said) == 3


def test_beyond_its_bound_it_loses_and_counts_and_never_waits(run, monkeypatch) -> None:
    monkeypatch.setattr(module, "WAITING_BYTES", 300_000)
    said = [a_record(body=b"x" * 100_000) for _ in range(12)]

    async def work(recorder: Recorder) -> None:
        os.kill(recorder._process.pid, signal.SIGSTOP)
        for record in said:
            recorder.put(record)
            await asyncio.sleep(0)
        assert recorder._waiting_bytes() < 300_000 + 101_000
        assert 4 <= recorder.lost <= 9
        os.kill(recorder._process.pid, signal.SIGCONT)
        await recorder.close()
        assert await aside(stored, said) == 12 - recorder.lost

    run(work)


def test_a_scribe_that_does_not_end_is_not_waited_for(run, monkeypatch, caplog) -> None:
    monkeypatch.setattr(module, "DRAIN_S", 0.05)

    async def work(recorder: Recorder) -> None:
        os.kill(recorder._process.pid, signal.SIGSTOP)
        await recorder.close()
        assert recorder._process.returncode == -signal.SIGKILL

    run(work)
    assert "The scribe does not end" in caplog.messages
