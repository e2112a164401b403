"""A query that is not answered ends by our clock."""

import asyncio
import time

import psycopg
import pytest

from billing.patience import answering_within
from gateway.runtime.process import database_url

pytestmark = pytest.mark.usefixtures("committed")


def test_a_query_is_cut_where_it_takes_too_long_and_left_alone_where_not() -> None:
    async def work() -> None:
        connection = await psycopg.AsyncConnection.connect(database_url(), autocommit=True)
        with answering_within(connection, 5.0):
            await connection.execute("SELECT 1")
        begun_s = time.monotonic()
        with pytest.raises(psycopg.OperationalError), answering_within(connection, 0.1):
            await connection.execute("SELECT pg_sleep(20)")
        assert time.monotonic() - begun_s < 5.0
        assert connection.closed
        with answering_within(connection, 0.0):
            await asyncio.sleep(0.01)  # to cut what is closed is no error

    asyncio.run(work())
