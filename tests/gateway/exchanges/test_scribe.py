"""The scribe over a real PostgreSQL, in this process and as the process that it is."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from gateway.exchanges import scribe as module
from gateway.exchanges.scribe import Scribe, records
from gateway.models import Transcript
from gateway.relay.transcript import row_of
from gateway.runtime.process import database_url
from tests.gateway.exchanges.said import a_record, framed, stored
from tests.proxy import Proxy
from tests.stack import ROOT, until

pytestmark = pytest.mark.usefixtures("committed")

BOOT_S = 40.0  # a scribe loads all of Django, perhaps on a busy machine
PARENT = """
import asyncio, sys
import django
django.setup()
from gateway.runtime.recorder import Recorder
from tests.gateway.exchanges.said import a_record

async def main():
    recorder = Recorder()
    await recorder.start()
    said = [a_record() for _ in range(20)]
    for record in said:
        recorder.put(record)
    while recorder._waiting_bytes():
        await asyncio.sleep(0.01)
    print(*(record[0].hex() for record in said), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def quick(monkeypatch) -> None:
    monkeypatch.setattr(module, "RETRY_PAUSE_S", 0.01)


@pytest.fixture
def scribe() -> Iterator[Scribe]:
    scribe = Scribe(database_url())
    yield scribe
    scribe._disconnect()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    parts = psycopg.conninfo.conninfo_to_dict(database_url())
    with Proxy(str(parts["host"]), int(parts["port"])) as proxy:
        yield proxy


@pytest.fixture
def proxied(proxy) -> Iterator[Scribe]:
    url = psycopg.conninfo.make_conninfo(database_url(), host="127.0.0.1", port=proxy.port)
    scribe = Scribe(url)
    yield scribe
    scribe._disconnect()


def rows(count: int) -> list[tuple]:
    return [row_of(a_record()) for _ in range(count)]


def written(rows: list[tuple]) -> int:
    return Transcript.objects.filter(exchange_id__in=[row[0] for row in rows]).count()


def test_a_batch_is_stored(scribe: Scribe) -> None:
    batch = rows(5)
    scribe.write(batch)
    assert written(batch) == 5


@pytest.mark.parametrize(
    ("tenant_id", "words"), [(1, "a\x00b"), (1, "\ud83d"), (1, object()), (2**63, "")]
)
def test_one_bad_row_does_not_drop_its_batch(scribe: Scribe, tenant_id, words, capfd) -> None:
    batch = rows(10)
    exchange_id, _, legs, *rest = batch[3]
    batch[3] = (exchange_id, tenant_id, {**legs, "x": words}, *rest)

    scribe.write(batch)

    assert written(batch) == 9
    assert not Transcript.objects.filter(exchange_id=exchange_id).exists()
    assert capfd.readouterr().err.count("a transcript was refused") == 1


def test_a_batch_that_was_stored_before_harms_nobody(scribe: Scribe) -> None:
    """As after a connection that was lost with its answer."""
    batch = rows(3)
    scribe.write(batch)
    scribe.write([*batch, *rows(1)])
    assert written(batch) == 3


def test_what_is_said_while_postgresql_is_away_is_stored_when_it_is_back(
    proxied: Scribe, proxy: Proxy, quick, capfd
) -> None:
    proxied.write(rows(1))
    proxy.cut()
    batch = rows(4)
    writing = threading.Thread(target=proxied.write, args=(batch,))
    writing.start()
    errors = ""

    def is_waiting() -> bool:
        nonlocal errors
        errors += capfd.readouterr().err
        return "transcripts wait for PostgreSQL" in errors

    until(is_waiting)
    assert written(batch) == 0
    proxy.mend()
    writing.join(10)
    assert written(batch) == 4


def test_a_pipe_that_has_ended_is_not_waited_for_without_end(
    proxied: Scribe, proxy: Proxy, quick, capfd
) -> None:
    proxy.cut()
    proxied.give_up_at_s = time.monotonic() - 1
    proxied.write(rows(2))
    assert "2 transcripts are lost" in capfd.readouterr().err


@pytest.mark.parametrize("cut", [1, 3, 4, 10, -1])
def test_a_record_that_was_cut_by_a_death_is_left_out(cut: int) -> None:
    whole, torn = framed(["whole"]), framed(["torn", "x" * 100])
    assert list(records(io.BytesIO(whole + torn[:cut]))) == [["whole"]]


def test_a_pipe_without_a_word_is_no_record() -> None:
    assert list(records(io.BytesIO(b""))) == []


def start() -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "gateway.exchanges.scribe"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url()},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_the_process_stores_all_it_was_told_and_ends_with_its_pipe() -> None:
    """An order to stop, which a terminal gives to all of a group, is none: the pipe's end is."""
    process = start()
    before, after = [a_record() for _ in range(120)], [a_record() for _ in range(30)]
    nonsense = [("nonsense",), a_record(body=b"\xff")]
    process.stdin.write(b"".join(map(framed, before)))
    process.stdin.flush()
    until(lambda: stored(before) == 120, seconds=BOOT_S)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.stdin.write(b"".join(map(framed, [nonsense[0], *after, nonsense[1]])))
    process.stdin.write(framed(a_record())[:-1])  # its writer has died in mid-word

    _, errors = process.communicate(timeout=BOOT_S)

    assert process.returncode == 0
    assert stored(after) == 30
    assert stored(nonsense[1:]) == 1
    assert errors == b"scribe: a transcript could not be made: ValueError\n"


def test_what_a_killed_gateway_had_said_is_stored() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url()},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        said = [UUID(text) for text in parent.stdout.readline().split()]
        parent.kill()
    assert len(said) == 20
    until(lambda: Transcript.objects.filter(exchange_id__in=said).count() == 20, seconds=BOOT_S)
