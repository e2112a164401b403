"""The cache of principals, over a pool that counts what is asked of it and can hold an answer."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest
import time_machine
from django.utils import timezone

from gateway.runtime import principals
from gateway.runtime.principals import PrincipalCache
from keys.services import revoke_key
from tests.gateway.runtime.conftest import aside

pytestmark = pytest.mark.usefixtures("committed")


class Pool:
    """One real connection a question; `hold` keeps answers until it is set again."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.questions = 0
        self.answered = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    @asynccontextmanager
    async def connection(self):
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as real:
            yield _Counting(real, self)


class _Counting:
    def __init__(self, real: psycopg.AsyncConnection, pool: Pool) -> None:
        self._real, self._pool = real, pool

    async def execute(self, *arguments):
        self._pool.questions += 1
        cursor = await self._real.execute(*arguments)
        self._pool.answered.set()
        await self._pool.hold.wait()
        return cursor


@pytest.fixture
def run(database_url):
    def run(work: Callable[[PrincipalCache, Pool], Awaitable[None]], *, is_listening=True) -> None:
        async def main() -> None:
            pool = Pool(database_url)
            async with asyncio.timeout(20):
                await work(PrincipalCache(pool, lambda: is_listening), pool)

        asyncio.run(main())

    return run


@pytest.fixture
def key(world):
    return world.key(world.tenant())


def test_a_key_that_was_seen_is_not_asked_for_again(run, key) -> None:
    async def work(cache: PrincipalCache, pool: Pool) -> None:
        for _ in range(3):
            found = await cache.authenticate(key.secret)
            assert found is not None
            assert found.key_id == key.key.pk
        assert pool.questions == 1

    run(work)


def test_a_wrong_secret_for_a_known_key_proves_nothing(run, key, world) -> None:
    other = world.key(world.tenant()).secret

    async def work(cache: PrincipalCache, pool: Pool) -> None:
        assert await cache.authenticate(key.secret) is not None
        forged = _with_public_id(other, key.key.public_id)
        assert await cache.authenticate(forged) is None

    run(work)


def test_a_known_key_expires_on_time(run, world) -> None:
    expires_at = timezone.now() + timedelta(hours=1)
    created = world.key(world.tenant(), expires_at=expires_at)

    async def work(cache: PrincipalCache, pool: Pool) -> None:
        assert await cache.authenticate(created.secret) is not None
        with time_machine.travel(expires_at, tick=False):
            for _ in range(2):
                assert await cache.authenticate(created.secret) is None
        assert await cache.authenticate(created.secret) is not None
        assert pool.questions == 1

    run(work)


def test_what_is_no_key_of_ours_reaches_no_database(run) -> None:
    async def work(cache: PrincipalCache, pool: Pool) -> None:
        for text in ("", "sk-proj-abc", "sk_live_short", "x" * 5_000):
            assert await cache.authenticate(text) is None
        assert pool.questions == 0

    run(work)


def test_an_absence_is_never_kept(run, world) -> None:
    """A key that PostgreSQL did not have a moment ago works as soon as it is there."""
    created = world.key(world.tenant())
    public_id = created.key.public_id
    created.key.__class__.objects.filter(pk=created.key.pk).update(public_id="_absent_")

    async def work(cache: PrincipalCache, pool: Pool) -> None:
        for _ in range(2):
            assert await cache.authenticate(created.secret) is None
        assert pool.questions == 2
        await aside(_rename, created.key, public_id)
        assert await cache.authenticate(created.secret) is not None

    run(work)


def test_a_word_about_a_key_makes_the_cache_ask_again(run, key, world) -> None:
    other = world.key(world.tenant())

    async def work(cache: PrincipalCache, pool: Pool) -> None:
        await cache.authenticate(key.secret)
        await cache.authenticate(other.secret)
        await aside(revoke_key, key.key.tenant, key.key.public_id, actor="tests")
        assert await cache.authenticate(key.secret) is not None  # the word is still on its way
        cache.forget(key.key.public_id)
        assert await cache.authenticate(key.secret) is None
        assert await cache.authenticate(other.secret) is not None
        assert pool.questions == 3

    run(work)


def test_a_word_about_a_tenant_forgets_its_keys_and_no_others(run, world) -> None:
    tenant = world.tenant()
    ours = [world.key(tenant), world.key(tenant)]
    theirs = world.key(world.tenant())

    async def work(cache: PrincipalCache, pool: Pool) -> None:
        for created in (*ours, theirs):
            await cache.authenticate(created.secret)
        cache.forget(f"tenant:{tenant.pk}")
        for created in (*ours, theirs):
            await cache.authenticate(created.secret)
        assert pool.questions == 5

    run(work)


def test_a_read_that_began_before_a_revocation_is_not_kept(run, key) -> None:
    async def work(cache: PrincipalCache, pool: Pool) -> None:
        pool.hold.clear()
        reading = asyncio.create_task(cache.authenticate(key.secret))
        await pool.answered.wait()  # PostgreSQL has said that the key is good
        await aside(revoke_key, key.key.tenant, key.key.public_id, actor="tests")
        cache.forget(key.key.public_id)
        pool.hold.set()
        await reading
        assert await cache.authenticate(key.secret) is None
        assert pool.questions == 2

    run(work)


def test_a_read_that_began_before_the_connection_was_lost_is_not_kept(run, key) -> None:
    async def work(cache: PrincipalCache, pool: Pool) -> None:
        pool.hold.clear()
        reading = asyncio.create_task(cache.authenticate(key.secret))
        await pool.answered.wait()
        cache.forget_all()
        pool.hold.set()
        await reading
        await cache.authenticate(key.secret)
        assert pool.questions == 2

    run(work)


def test_nothing_is_trusted_or_kept_while_nobody_listens(run, key) -> None:
    async def work(cache: PrincipalCache, pool: Pool) -> None:
        for _ in range(3):
            assert await cache.authenticate(key.secret) is not None
        assert pool.questions == 3

    run(work, is_listening=False)


def test_the_cache_has_a_bound(run, world, monkeypatch) -> None:
    monkeypatch.setattr(principals, "PRINCIPALS_KEPT", 2)
    tenant = world.tenant()
    created = [world.key(tenant) for _ in range(3)]

    async def work(cache: PrincipalCache, pool: Pool) -> None:
        for one in created:
            await cache.authenticate(one.secret)
        await cache.authenticate(created[2].secret)
        assert pool.questions == 3
        await cache.authenticate(created[0].secret)
        assert pool.questions == 4

    run(work)


def _with_public_id(text: str, public_id: str) -> str:
    """The same secret under another key's public id, with the checksum set right."""
    from keys import secrets

    kind, _, tail = text.removeprefix("sk_").split("_")
    head = f"sk_{kind}_{public_id}_{tail[: secrets.SECRET_LENGTH]}"
    return head + secrets._checksum(head)


def _rename(key, public_id: str) -> None:
    type(key).objects.filter(pk=key.pk).update(public_id=public_id)
