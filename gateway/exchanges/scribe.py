"""The scribe: a process beside each gateway process that writes its transcripts.

Masking and packing take longer than relaying, and a large body takes tens of milliseconds, in
which no stream would move. So the gateway writes what was said to a pipe, as it is, and this
process masks, packs and stores it: nothing unmasked is ever stored.

It ends when the pipe ends and all is written: with the gateway, also when that is killed.
"""

import contextlib
import marshal
import os
import queue
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

import django
import orjson
import psycopg
from psycopg.types.json import Jsonb

LENGTH = struct.Struct(">I")
QUEUE_RECORDS = 500  # beyond them the pipe fills, and then the gateway's own bound holds
BATCH_RECORDS = 100
RETRY_PAUSE_S = 0.5
LAST_TRIES_S = 8.0  # how long an ended pipe's rest is tried without PostgreSQL
COPY = """
COPY gateway_transcript (exchange_id, tenant_id, legs, summary, client_request, vendor_answer,
                         client_answer) FROM STDIN WITH (FORMAT BINARY)
"""
COLUMN_TYPES = ("uuid", "int8", "jsonb", "jsonb", "bytea", "bytea", "bytea")

UNFIT = (TypeError, ValueError, OverflowError)  # what a value raises that has no binary form

Row = tuple[Any, ...]


class Scribe:
    """Rows in batches through one connection. One bad row does not drop its batch."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None
        self.give_up_at_s: float | None = None

    def write(self, rows: Sequence[Row]) -> None:
        while rows:
            try:
                self._copy(rows)
            except psycopg.OperationalError as error:
                self._disconnect()
                if self.give_up_at_s is not None and time.monotonic() > self.give_up_at_s:
                    _say(f"{len(rows)} transcripts are lost: PostgreSQL does not answer")
                    return
                _say(f"transcripts wait for PostgreSQL ({type(error).__name__})")
                time.sleep(RETRY_PAUSE_S)
                continue
            except (psycopg.Error, *UNFIT) as error:
                if len(rows) == 1:
                    _say(f"a transcript was refused: {type(error).__name__}")
                    return
                for row in rows:
                    self.write([row])
            return

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _copy(self, rows: Sequence[Row]) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._url, autocommit=True, application_name="farthing-scribe", connect_timeout=3
            )
        with self._connection.cursor() as cursor, cursor.copy(COPY) as copy:
            copy.set_types(COLUMN_TYPES)
            for exchange_id, tenant_id, legs, summary, *bodies in rows:
                copy.write_row((exchange_id, tenant_id, _json(legs), _json(summary), *bodies))


def records(stream: IO[bytes]) -> Iterator[Any]:
    """What was put on the pipe; a record cut by the writer's death is left out."""
    while len(head := stream.read(LENGTH.size)) == LENGTH.size:
        (size,) = LENGTH.unpack(head)
        body = stream.read(size)
        if len(body) < size:
            return
        yield marshal.loads(body)  # noqa: S302  # our own parent wrote it


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the end of the pipe is the order to stop
    if hasattr(os, "sched_setscheduler"):  # in turn with the gateway, and never in its way
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()
    from gateway.runtime.process import database_url

    scribe = Scribe(database_url())
    heard: queue.Queue[Any] = queue.Queue(QUEUE_RECORDS)
    threading.Thread(target=_listen, args=(heard, scribe), daemon=True).start()
    while (batch := _next_batch(heard)) is not None:
        scribe.write([row for record in batch if (row := _row(record)) is not None])


def _listen(heard: "queue.Queue[Any]", scribe: Scribe) -> None:
    try:
        for record in records(sys.stdin.buffer):
            heard.put(record)
    finally:
        scribe.give_up_at_s = time.monotonic() + LAST_TRIES_S
        heard.put(None)


def _next_batch(heard: "queue.Queue[Any]") -> list[Any] | None:
    first = heard.get()
    if first is None:
        return None
    batch = [first]
    with contextlib.suppress(queue.Empty):
        while len(batch) < BATCH_RECORDS:
            record = heard.get_nowait()
            if record is None:
                heard.put(None)
                break
            batch.append(record)
    return batch


def _row(record: Any) -> Row | None:
    from gateway.relay.transcript import row_of

    try:
        return row_of(record)
    except Exception as error:  # noqa: BLE001  # one exchange's transcript, never its neighbours'
        _say(f"a transcript could not be made: {type(error).__name__}")
        return None


def _json(value: Any) -> Jsonb | None:
    return None if value is None else Jsonb(value, orjson.dumps)


def _say(words: str) -> None:
    sys.stderr.write(f"scribe: {words}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
