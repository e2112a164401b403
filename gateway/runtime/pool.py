"""The process's few connections for what is not a batch of money: keys, claims, heartbeats."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from billing.patience import answering_within

POOL_WAIT_S = 1.0  # a request that needs PostgreSQL is refused after this long without it
POOL_ANSWER_S = 3.0  # and after this long with one that does not answer
POOL_CHECK_S = 1.0
POOL_RECONNECT_S = 2.0  # then a new request tries anew, so that recovery needs no back-off
CONNECTIONS_MAX = 4


class Pool(AsyncConnectionPool[psycopg.AsyncConnection[Any]]):
    """Hands out connections that are cut if their block takes longer than `POOL_ANSWER_S`."""

    def __init__(self, url: str, *, connect_timeout_s: int) -> None:
        super().__init__(
            url,
            min_size=1,
            max_size=CONNECTIONS_MAX,
            open=False,
            timeout=POOL_WAIT_S,
            reconnect_timeout=POOL_RECONNECT_S,
            check=_check,
            kwargs={"autocommit": True, "connect_timeout": connect_timeout_s},
        )

    @asynccontextmanager
    async def connection(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  # the name is psycopg's
    ) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with super().connection(timeout) as connection:
            with answering_within(connection, POOL_ANSWER_S):
                yield connection


async def _check(connection: psycopg.AsyncConnection[Any]) -> None:
    with answering_within(connection, POOL_CHECK_S):
        await AsyncConnectionPool.check_connection(connection)
