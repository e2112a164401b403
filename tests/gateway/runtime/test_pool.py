"""A pool that is not held up by a PostgreSQL which takes questions and answers none."""

import asyncio
import time

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from gateway.runtime import pool as pools
from gateway.runtime.pool import Pool
from gateway.runtime.process import database_url
from tests.proxy import Proxy

pytestmark = pytest.mark.usefixtures("committed")


def test_a_silent_server_is_given_up_in_time_and_used_again_when_it_answers(monkeypatch) -> None:
    monkeypatch.setattr(pools, "POOL_ANSWER_S", 0.2)
    monkeypatch.setattr(pools, "POOL_CHECK_S", 0.2)
    parts = psycopg.conninfo.conninfo_to_dict(database_url())

    async def ask(pool: Pool) -> int:
        async with pool.connection() as connection:
            cursor = await connection.execute("SELECT 1")
            return (await cursor.fetchone())[0]

    async def work(proxy: Proxy) -> None:
        url = psycopg.conninfo.make_conninfo(database_url(), port=proxy.port)
        pool = Pool(url, connect_timeout_s=2)
        await pool.open(wait=True, timeout=5.0)
        assert await ask(pool) == 1

        async with pool.connection() as connection:  # silent in the middle
            proxy.lose_answers()
            with pytest.raises(psycopg.OperationalError):
                await connection.execute("SELECT 1")
        begun_s = time.monotonic()
        for _ in range(2):  # silent when a connection is asked for
            with pytest.raises(PoolTimeout):
                await ask(pool)
        assert time.monotonic() - begun_s < 4.0

        proxy.find_answers()
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await ask(pool) == 1
                except (PoolTimeout, psycopg.OperationalError):
                    continue
                break
        await pool.close()

    with Proxy(str(parts["host"]), int(parts["port"])) as proxy:
        asyncio.run(work(proxy))
