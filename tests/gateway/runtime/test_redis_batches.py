"""Batches against a real Valkey."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis
from django.conf import settings

from gateway.runtime.redis_batches import BATCH_COMMANDS, FAILURES, RedisBatches, Script

ADD = Script("return tonumber(ARGV[1]) + tonumber(ARGV[2])")


def run(work: Callable[[RedisBatches], Awaitable[None]], url: str | None = None) -> None:
    async def bounded() -> None:
        batches = RedisBatches(url or settings.REDIS_URL)
        async with asyncio.timeout(20):
            try:
                await work(batches)
            finally:
                await batches.close()

    asyncio.run(bounded())


def test_each_gets_its_own_reply_in_order() -> None:
    async def work(batches: RedisBatches) -> None:
        count = 2 * BATCH_COMMANDS + 7
        answers = [batches.run(ADD, [], [number, 1]) for number in range(count)]
        assert await asyncio.gather(*answers) == [number + 1 for number in range(count)]

    run(work)


def test_a_script_that_the_server_forgot_is_told_again() -> None:
    async def work(batches: RedisBatches) -> None:
        assert await batches.run(ADD, [], [1, 1]) == 2
        await batches.send("SCRIPT", "FLUSH")
        sums = [
            batches.run(ADD, [], [1, 2]),
            batches.send("ECHO", "x"),
            batches.run(ADD, [], [2, 2]),
        ]
        assert await asyncio.gather(*sums) == [3, b"x", 4]

    run(work)


def test_what_fails_fails_alone() -> None:
    async def work(batches: RedisBatches) -> None:
        bad, good = batches.run(ADD, [], ["x", 1]), batches.run(ADD, [], [1, 1])
        assert await good == 2
        with pytest.raises(redis.ResponseError):
            await bad

    run(work)


def test_one_who_leaves_takes_nobody_along() -> None:
    async def work(batches: RedisBatches) -> None:
        leaves, stays = batches.run(ADD, [], [1, 1]), batches.run(ADD, [], [1, 2])
        leaves.cancel()
        assert await stays == 3

    run(work)


def test_without_a_server_every_answer_is_a_failure() -> None:
    async def work(batches: RedisBatches) -> None:
        answers = [batches.send("PING") for _ in range(3)]
        for answer in answers:
            with pytest.raises(FAILURES):
                await answer

    run(work, url="redis://127.0.0.1:1/0")


def test_what_waits_when_it_closes_is_sent() -> None:
    name = "tests:batches:closing"

    async def work(batches: RedisBatches) -> None:
        batches.send("SET", name, "sent")

    run(work)
    with redis.Redis.from_url(settings.REDIS_URL) as store:
        assert store.getdel(name) == b"sent"
