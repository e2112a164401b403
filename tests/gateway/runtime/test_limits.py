"""Limits against a real Valkey. Time passes where a test moves what Valkey has kept of it."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import redis
from django.conf import settings

from gateway.runtime import limits
from gateway.runtime.limits import LEASE_MS, Grant, Limiter, allowances, limit_headers
from gateway.supervisor.embedded import start_valkey
from tests.proxy import Proxy

PATIENCE_S = 2.0
_key_ids = itertools.count(1_000_000)


@pytest.fixture
def store() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL) as store:
        yield store


@pytest.fixture
def key(principal):
    def make(**changes):
        return principal(key_id=next(_key_ids), **changes)

    return make


@asynccontextmanager
async def limiters(count: int = 1, *, url: str | None = None, processes: int = 1):
    made = [Limiter(url or settings.REDIS_URL, processes) for _ in range(count)]
    try:
        yield made if count > 1 else made[0]
    finally:
        for limiter in made:
            await limiter.close()


async def take(limiter: Limiter, key, count: int) -> list[Grant]:
    return [await ask(limiter, key) for _ in range(count)]


async def ask(limiter: Limiter, key, name: str | None = None, plan=(None, None)) -> Grant:
    return await limiter.take(allowances(key, *plan), name or f"r{next(_key_ids)}")


async def heard(limiter: Limiter) -> None:
    """Redis has heard all that was sent to it."""
    await limiter._redis.send("PING")


def allowed(grants: list[Grant]) -> list[bool]:
    return [grant.is_allowed for grant in grants]


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(bounded())


def minute(key) -> str:
    return f"farthing:minute:{{{key.tenant_id}}}:key:{key.key_id}"


def slots(key) -> str:
    return f"farthing:slots:{{{key.tenant_id}}}:key:{key.key_id}"


def pass_time(store: redis.Redis, name: str, milliseconds: int) -> None:
    for member, score in store.zrange(name, 0, -1, withscores=True):
        store.zadd(name, {member: score - milliseconds})


def test_a_key_without_limits_costs_no_round_trip(key) -> None:
    async def work() -> None:
        async with limiters(url="redis://127.0.0.1:1/0") as limiter:
            assert await ask(limiter, key(), "r1") == limits.NO_LIMITS
            assert not limiter.is_redis_away

    run(work)


def test_at_most_n_in_a_minute_from_two_processes(key, store) -> None:
    limited = key(requests_per_minute=10)

    async def work() -> None:
        async with limiters(2, processes=2) as (one, two):
            grants = []
            for _ in range(10):
                grants += await take(one, limited, 1) + await take(two, limited, 1)
        assert sum(allowed(grants)) == 10
        assert [grant.requests_left for grant in grants[:3]] == [9, 8, 7]
        assert {grant.limit for grant in grants if not grant.is_allowed} == {"requests per minute"}
        assert all(0 < grant.reset_ms <= 60_000 for grant in grants)

    run(work)
    assert store.zcard(minute(limited)) == 10


def test_many_at_once_are_counted_one_by_one(key) -> None:
    limited = key(requests_per_minute=10)

    async def work() -> None:
        async with limiters(2) as (one, two):
            work = [ask(limiter, limited, f"{n}") for n, limiter in enumerate([one, two] * 20)]
            assert sum(allowed(await asyncio.gather(*work))) == 10

    run(work)


def test_the_window_slides_by_the_clock_of_the_store(key, store, monkeypatch) -> None:
    """The other process's clock is 90 s ahead, which must not open a new window for it."""
    limited = key(requests_per_minute=10)
    ahead = SimpleNamespace(monotonic=lambda: time.monotonic() + 90.0, time=time.time)

    async def work() -> None:
        async with limiters(2) as (one, two):
            grants = []
            for _ in range(10):
                grants += await take(one, limited, 1)
                with monkeypatch.context() as patched:
                    patched.setattr(limits, "time", ahead)
                    grants += await take(two, limited, 1)
        assert sum(allowed(grants)) == 10

    run(work)
    seconds, _ = store.time()
    scores = [score for _, score in store.zrange(minute(limited), 0, -1, withscores=True)]
    assert all(abs(score / 1_000 - seconds) < 20 for score in scores)


def test_a_minute_later_there_is_room_for_as_many_as_left_the_window(key, store) -> None:
    limited = key(requests_per_minute=3)

    async def first() -> None:
        async with limiters() as limiter:
            assert allowed(await take(limiter, limited, 2)) == [True, True]

    async def later() -> None:
        async with limiters() as limiter:  # another process, which has counted nothing itself
            assert allowed(await take(limiter, limited, 2)) == [True, False]
            pass_time(store, minute(limited), 50_000)
            refused = await ask(limiter, limited, "refused")
            assert (refused.is_allowed, refused.retry_after_s) == (False, 10)
            pass_time(store, minute(limited), 10_000)

        async with limiters() as limiter:
            assert allowed(await take(limiter, limited, 4)) == [True, True, True, False]

    run(first)
    pass_time(store, minute(limited), 1)
    run(later)


def test_a_slot_is_free_again_when_it_is_given_back(key) -> None:
    limited = key(concurrent_requests=2)

    async def work() -> None:
        async with limiters() as limiter:
            first, second, third = await take(limiter, limited, 3)
            assert allowed([first, second, third]) == [True, True, False]
            assert (third.limit, third.slot) == ("concurrent requests", None)
            limiter.give_back(first)
            limiter.give_back(first)
            assert allowed(await take(limiter, limited, 2)) == [True, False]

    run(work)


def test_what_concurrency_refuses_does_not_count_for_the_minute(key, store) -> None:
    limited = key(requests_per_minute=3, concurrent_requests=1)

    async def work() -> None:
        async with limiters(2) as (one, two):
            running = await ask(one, limited, "running")
            for limiter in (one, two, one, two):
                refused = await ask(limiter, limited, "refused")
                assert (refused.limit, refused.requests_left) == ("concurrent requests", 2)
            one.give_back(running)
            await heard(one)
            again = await ask(two, limited, "again")
            assert (again.is_allowed, again.requests_left) == (True, 1)

    run(work)
    assert store.zcard(minute(limited)) == 2


def test_a_dead_process_gives_its_slots_back_by_itself(key, store) -> None:
    limited = key(concurrent_requests=1)

    async def dies() -> None:
        async with limiters() as limiter:
            assert (await ask(limiter, limited, "dead")).is_allowed

    async def lives() -> None:
        async with limiters() as limiter:
            assert not (await ask(limiter, limited, "too early")).is_allowed
            pass_time(store, slots(limited), LEASE_MS)
            assert (await ask(limiter, limited, "later")).is_allowed

    run(dies)
    assert 0 < store.pttl(slots(limited)) <= LEASE_MS
    run(lives)


def test_a_lease_is_renewed_while_its_request_runs_and_never_afterwards(key, store) -> None:
    limited = key(concurrent_requests=5)

    async def work() -> None:
        async with limiters() as limiter:
            running = await ask(limiter, limited, "running")
            pass_time(store, slots(limited), LEASE_MS - 1_000)
            await limiter.renew()
            (_, score), *_ = store.zrange(slots(limited), 0, -1, withscores=True)
            seconds, microseconds = store.time()
            left_ms = score - seconds * 1_000 - microseconds / 1_000
            assert LEASE_MS - 5_000 < left_ms <= LEASE_MS
            limiter.give_back(running)
            await limiter.renew()
            await heard(limiter)
            assert store.zcard(slots(limited)) == 0

    run(work)


def test_without_redis_each_process_has_its_share(key) -> None:
    limited = key(requests_per_minute=10, concurrent_requests=4)

    async def work() -> None:
        async with limiters(url="redis://127.0.0.1:1/0", processes=2) as limiter:
            grants = await take(limiter, limited, 3)
            assert allowed(grants) == [True, True, False]
            assert grants[2].limit == "concurrent requests"
            assert limiter.is_redis_away
            for _ in range(2):
                limiter.give_back(grants[0])
                limiter.give_back(grants[1])
                grants = await take(limiter, limited, 2)
            limiter.give_back(grants[0])
            assert [grant.requests_left for grant in grants] == [0, 0]
            refused = await ask(limiter, limited, "refused")
            assert (refused.is_allowed, refused.limit) == (False, "requests per minute")
            assert 0 < refused.reset_ms <= 60_000

    run(work)


def test_every_process_may_let_one_through_however_small_the_share(key) -> None:
    async def work() -> None:
        async with limiters(url="redis://127.0.0.1:1/0", processes=8) as limiter:
            assert allowed(await take(limiter, key(requests_per_minute=2), 2)) == [True, False]

    run(work)


def test_a_silent_redis_delays_a_request_by_a_moment_only(key) -> None:
    limited = key(requests_per_minute=10)
    parts = urlsplit(settings.REDIS_URL)

    async def work(proxy: Proxy) -> None:
        url = f"redis://:{parts.password}@127.0.0.1:{proxy.port}/0"
        async with limiters(url=url) as limiter:
            assert (await ask(limiter, limited, "before")).is_allowed
            proxy.freeze()
            begun_s = time.monotonic()
            assert allowed(await take(limiter, limited, 3)) == [True] * 3
            assert time.monotonic() - begun_s < PATIENCE_S
            assert limiter.is_redis_away

    with Proxy(str(parts.hostname), int(parts.port or 6379)) as proxy:
        run(lambda: work(proxy))


def test_neither_the_loss_of_redis_nor_its_return_starts_a_key_anew(
    key, tmp_path, monkeypatch
) -> None:
    limited = key(requests_per_minute=4, concurrent_requests=3)
    monkeypatch.setattr(limits, "REDIS_PAUSE_S", 0.0)

    def start(port: int | None = None):
        return start_valkey(
            tmp_path / "valkey",
            password="one",
            log_path=tmp_path / "log",
            port=port,
            durable=False,
        )

    async def work(server) -> None:
        async with limiters(url=server.url) as limiter:
            assert allowed(await take(limiter, limited, 2)) == [True, True]
            server.kill()
            grants = await take(limiter, limited, 2)
            assert allowed(grants) == [True, False]
            assert grants[1].limit == "concurrent requests"
            assert limiter.is_redis_away
            limiter.give_back(grants[0])

            server = start(server.port)  # it has forgotten everything
            grants = await take(limiter, limited, 2)
            assert allowed(grants) == [True, False]
            assert not limiter.is_redis_away
            limiter.give_back(grants[0])
            refused = await ask(limiter, limited, "fifth")
            assert (refused.is_allowed, refused.limit) == (False, "requests per minute")
        server.stop()

    server = start()
    run(lambda: work(server))


def test_a_process_remembers_no_key_that_is_idle(key, monkeypatch) -> None:
    limited, running = key(requests_per_minute=4), key(concurrent_requests=1)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 61.0)

    async def work() -> None:
        async with limiters() as limiter:
            await ask(limiter, limited, "one")
            grant = await ask(limiter, running, "two")
            monkeypatch.setattr(limits, "time", later)
            await limiter.renew()
            assert set(limiter._local) == {f"{{{running.tenant_id}}}:key:{running.key_id}"}
            limiter.give_back(grant)
            await limiter.renew()
            assert limiter._local == {}
            assert limiter._leases == {}

    run(work)


# --- a plan's limits, for all keys of a tenant together ----------------------------------------


def test_keys_of_a_tenant_share_what_their_plan_lets_through(key) -> None:
    one, two = key(tenant_id=next(_key_ids)), key()
    two = replace(two, tenant_id=one.tenant_id)

    async def work() -> None:
        async with limiters(2) as (first, second):
            grants = [await ask(first, one, plan=(3, None)), await ask(second, two, plan=(3, None))]
            grants += [
                await ask(first, two, plan=(3, None)),
                await ask(second, one, plan=(3, None)),
            ]
        assert allowed(grants) == [True, True, True, False]
        assert [grant.requests_left for grant in grants] == [2, 1, 0, 0]
        assert (grants[3].refused_by.scope, grants[3].limit_size) == ("tenant", 3)

    run(work)


def test_room_is_needed_in_both_and_taken_in_both_or_none(key, store) -> None:
    limited = key(tenant_id=next(_key_ids), requests_per_minute=5, concurrent_requests=5)
    other = replace(key(), tenant_id=limited.tenant_id)

    async def work() -> None:
        async with limiters() as limiter:
            running = await ask(limiter, other, plan=(None, 1))
            refused = await ask(limiter, limited, plan=(None, 1))
            assert (refused.is_allowed, refused.limit) == (False, "concurrent requests")
            assert refused.refused_by.scope == "tenant"
            assert store.zcard(minute(limited)) == store.zcard(slots(limited)) == 0
            limiter.give_back(running)
            granted = await ask(limiter, limited, plan=(None, 1))
            assert (granted.is_allowed, len(granted.taken), granted.requests_left) == (True, 2, 4)
            limiter.give_back(granted)
            await heard(limiter)
            assert store.zcard(slots(limited)) == 0
            assert (await ask(limiter, other, plan=(None, 1))).is_allowed

    run(work)


def test_the_tightest_limit_is_told(key) -> None:
    limited = key(tenant_id=next(_key_ids), requests_per_minute=10)

    async def work() -> None:
        async with limiters() as limiter:
            grant = await ask(limiter, limited, plan=(4, None))
            assert (grant.requests_limit, grant.requests_left) == (4, 3)

    run(work)


def test_a_plans_share_holds_without_redis_too(key) -> None:
    limited = key(tenant_id=next(_key_ids))

    async def work() -> None:
        async with limiters(url="redis://127.0.0.1:1/0", processes=2) as limiter:
            grants = [await ask(limiter, limited, plan=(4, None)) for _ in range(3)]
            assert allowed(grants) == [True, True, False]

    run(work)


def test_test_keys_do_not_use_up_what_live_keys_may(key) -> None:
    live = key(tenant_id=next(_key_ids))
    tests = replace(live, kind="test")

    async def work() -> None:
        async with limiters() as limiter:
            assert (await ask(limiter, tests, plan=(1, None))).is_allowed
            assert (await ask(limiter, live, plan=(1, None))).is_allowed
            assert not (await ask(limiter, tests, plan=(1, None))).is_allowed

    run(work)


def test_headers_speak_of_the_minute_and_only_where_there_is_a_limit() -> None:
    grant = Grant(is_allowed=True, requests_limit=60, requests_left=59, reset_ms=1_500)
    assert limit_headers(grant) == [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1.5s"),
    ]
    assert limit_headers(limits.NO_LIMITS) == []


@pytest.mark.parametrize(("reset_ms", "seconds"), [(0, 1), (1, 1), (1_000, 1), (1_001, 2)])
def test_a_client_is_never_told_to_come_too_early(reset_ms: int, seconds: int) -> None:
    assert Grant(is_allowed=False, reset_ms=reset_ms).retry_after_s == seconds
