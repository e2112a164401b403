"""A bound on how long PostgreSQL may take to answer, kept on our side.

A server that is frozen, or gone without a word, enforces none of its own time-outs. Cancelling
does not help either: psycopg then asks that same server to cancel, and waits for it. So the
connection is cut under the query, which raises OperationalError at once. The server may still
carry out what it has read: whoever asked knows nothing of the outcome.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import psycopg


@contextlib.contextmanager
def answering_within(connection: Any, seconds: float) -> Iterator[None]:
    """Cut the connection if the block is not over by then."""
    timer = asyncio.get_running_loop().call_later(seconds, cut, connection)
    try:
        yield
    finally:
        timer.cancel()


def cut(connection: psycopg.AsyncConnection[Any]) -> None:
    """End its socket in both directions, under whoever waits on it; closing stays theirs."""
    with contextlib.suppress(OSError, psycopg.Error):
        twin = socket.socket(fileno=os.dup(connection.pgconn.socket))
        with twin:
            twin.shutdown(socket.SHUT_RDWR)
