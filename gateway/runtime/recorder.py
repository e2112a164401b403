"""Transcripts, written off the hot path.

A bounded queue and one connection. What is put in is written, in batches, until an orderly stop.
A full queue loses transcripts rather than memory, and counts them: they explain charges, they do
not make them. One bad row does not drop its batch.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

logger = logging.getLogger(__name__)

QUEUE_RECORDS = 2_000
BATCH_RECORDS = 100
PAUSE_S = 0.5
DRAIN_SECONDS = 5.0
COPY = """
COPY gateway_transcript (exchange_id, tenant_id, legs, summary, client_request, vendor_answer,
                         client_answer) FROM STDIN WITH (FORMAT BINARY)
"""
COLUMN_TYPES = ("uuid", "int8", "jsonb", "jsonb", "bytea", "bytea", "bytea")

Connect = Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]
Row = tuple[Any, ...]
MakeRow = Callable[[], Row | None]


class Recorder:
    """`put` takes a function: masking and packing are done when the record's turn comes."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._queue: asyncio.Queue[MakeRow] = asyncio.Queue(QUEUE_RECORDS)
        self.lost = 0

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def put(self, make_row: MakeRow) -> None:
        try:
            self._queue.put_nowait(make_row)
        except asyncio.QueueFull:
            self.lost += 1
            logger.warning("A transcript is lost: %d wait for PostgreSQL", QUEUE_RECORDS)

    async def run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH_RECORDS and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._write([row for make in batch if (row := _made(make)) is not None])
            for _ in batch:
                self._queue.task_done()

    async def close(self) -> None:
        """Wait until what is queued is written, at most `DRAIN_SECONDS`."""
        try:
            await asyncio.wait_for(self._queue.join(), DRAIN_SECONDS)
        except TimeoutError:
            logger.error("%d transcripts could not be written", self.waiting)  # noqa: TRY400
        if self._connection is not None:
            await self._connection.close()

    async def _write(self, rows: list[Row]) -> None:
        while rows:
            try:
                await self._copy(rows)
            except (psycopg.OperationalError, OSError) as error:
                logger.warning("Transcripts wait for PostgreSQL (%s)", type(error).__name__)
                await self._disconnect()
                await asyncio.sleep(PAUSE_S)
                continue
            except psycopg.Error as error:
                if len(rows) == 1:
                    logger.error("A transcript was refused: %s", error.diag.message_primary)  # noqa: TRY400
                    return
                for row in rows:
                    await self._write([row])
            return

    async def _copy(self, rows: list[Row]) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = await self._connect()
        async with self._connection.cursor() as cursor, cursor.copy(COPY) as copy:
            copy.set_types(COLUMN_TYPES)
            for exchange_id, tenant_id, legs, summary, *bodies in rows:
                await copy.write_row((exchange_id, tenant_id, Jsonb(legs), _json(summary), *bodies))

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _json(value: Any) -> Jsonb | None:
    return None if value is None else Jsonb(value)


def _made(make_row: MakeRow) -> Row | None:
    try:
        return make_row()
    except Exception:
        logger.exception("A transcript could not be made")
        return None
