import asyncio
import logging

import pytest

from gateway.runtime.background import Background


def run(work) -> None:
    asyncio.run(work())


def test_what_was_started_is_waited_for_and_what_that_starts_too() -> None:
    done: list[str] = []

    async def work() -> None:
        background = Background()

        async def inner() -> None:
            await asyncio.sleep(0)
            done.append("inner")

        async def outer() -> None:
            await asyncio.sleep(0)
            background.start(inner(), "inner")
            done.append("outer")

        background.start(outer(), "outer")
        await background.finish(within_s=5.0)

    run(work)
    assert done == ["outer", "inner"]


def test_what_does_not_end_in_time_is_cancelled() -> None:
    ended: list[str] = []

    async def work() -> None:
        background = Background()

        async def endless() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        task = background.start(endless(), "endless")
        await asyncio.sleep(0)
        await background.finish(within_s=0.01)
        assert task.cancelled()

    run(work)
    assert ended == ["cancelled"]


def test_a_failure_is_logged_by_name_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        background = Background()

        async def broken() -> None:
            raise ValueError("a reason")

        background.start(broken(), "the broken one")
        background.start(asyncio.sleep(0), "the sound one")
        await background.finish(within_s=5.0)

    with caplog.at_level(logging.ERROR):
        run(work)
    (record,) = caplog.records
    assert record.getMessage() == "the broken one failed"
    assert str(record.exc_info[1]) == "a reason"


def test_a_task_is_kept_alive_by_its_keeper_alone() -> None:
    async def work() -> None:
        import gc
        import weakref

        background = Background()
        started = asyncio.Event()

        async def lonely() -> None:
            waiter = asyncio.get_running_loop().create_future()
            started.set()
            await waiter

        kept = weakref.ref(background.start(lonely(), "lonely"))
        await started.wait()
        gc.collect()
        assert kept() is not None
        await background.finish(within_s=0.0)

    run(work)
