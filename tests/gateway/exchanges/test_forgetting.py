"""What was said leaves when its days are over, and nothing before."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, connections, transaction

from gateway.exchanges import forgetting, partitions
from gateway.exchanges.forgetting import forget_transcripts
from gateway.models import Transcript
from keys.models import Tenant
from keys.transcripts import set_transcripts

NOW = datetime(2031, 3, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def make_partition(day: datetime) -> str:
    name = f"gateway_transcript_y{day:%Y}m{day:%m}d{day:%d}"
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF gateway_transcript FOR VALUES"
            f" FROM ('{first_id(day)}') TO ('{first_id(day + DAY)}')"
        )
    return name


def first_id(moment: datetime) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT farthing_first_uuid(%s)", [moment])
        return str(cursor.fetchone()[0])


def say(tenant: Tenant, days_ago: float) -> str:
    exchange_id = first_id(NOW - days_ago * DAY)
    Transcript.objects.create(exchange_id=exchange_id, tenant_id=tenant.pk)
    return exchange_id


def kept(*ids: str) -> list[str]:
    found = {str(found) for found in Transcript.objects.values_list("exchange_id", flat=True)}
    return [one for one in ids if one in found]


@pytest.fixture
def tenant(world):
    """Makes tenants of which no other keeps more; the days of the real calendar are gone."""
    Tenant.objects.update(transcript_days=1)
    forget_transcripts(NOW - 365 * DAY)

    def make(days: int) -> Tenant:
        tenant = world.tenant(balance="0")
        set_transcripts(tenant, "content", days, actor="tests")
        return tenant

    return make


def test_a_day_that_nobody_keeps_is_dropped_whole(tenant) -> None:
    acme = tenant(10)
    old, young = (make_partition(NOW.replace(hour=0) - days * DAY) for days in (11, 10))
    gone, last = say(acme, 11), say(acme, 9.9)
    assert forget_transcripts(NOW) >= 1
    names = partitions.transcript_partitions()
    assert (old in names, young in names) == (False, True)
    assert kept(gone, last) == [last]
    assert forget_transcripts(NOW) == 0


def test_who_keeps_less_loses_rows_of_a_day_that_another_keeps(tenant) -> None:
    short, long = tenant(3), tenant(30)
    for days in range(6):
        make_partition(NOW.replace(hour=0) - days * DAY)
    ids = {
        (name, days): say(who, days + apart)
        for name, who, apart in (("short", short, 0.0), ("long", long, 0.01))
        for days in (1, 2.9, 3.1, 5)
    }
    assert forget_transcripts(NOW) == 2
    assert kept(ids["short", 1], ids["short", 2.9]) == [ids["short", 1], ids["short", 2.9]]
    assert kept(ids["short", 3.1], ids["short", 5]) == []
    assert len(kept(*(ids["long", days] for days in (1, 2.9, 3.1, 5)))) == 4


def test_fewer_days_are_true_of_what_was_kept_before(tenant) -> None:
    acme, _other = tenant(20), tenant(30)
    make_partition(NOW.replace(hour=0) - 15 * DAY)
    said = say(acme, 15)
    forget_transcripts(NOW)
    assert kept(said) == [said]
    set_transcripts(acme, "content", 10, actor="tests")
    forget_transcripts(NOW)
    assert kept(said) == []


def test_what_has_no_day_of_its_own_leaves_too(tenant) -> None:
    acme = tenant(10)
    old, young = say(acme, 100), say(acme, 9)
    assert forget_transcripts(NOW) == 1
    assert kept(old, young) == [young]


def test_many_rows_leave_in_short_statements(tenant, monkeypatch) -> None:
    monkeypatch.setattr(forgetting, "TRANSCRIPT_ROWS", 2)
    monkeypatch.setattr(forgetting, "BATCHES_MAX", 2)
    acme = tenant(10)
    for hours in range(5):
        say(acme, 100 + hours / 24)
    assert forget_transcripts(NOW) == 4
    assert forget_transcripts(NOW) == 1


@pytest.mark.usefixtures("committed")
def test_a_day_in_use_is_dropped_next_time(monkeypatch) -> None:
    monkeypatch.setattr(forgetting, "LOCK_WAIT_MS", 50)
    name = make_partition(datetime(2001, 1, 1, tzinfo=UTC))
    is_read, may_end = threading.Event(), threading.Event()

    def read() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {name}")
            is_read.set()
            may_end.wait(20)
        connections.close_all()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert is_read.wait(20)
        assert forgetting._drop(name) == 0
        assert name in partitions.transcript_partitions()
    finally:
        may_end.set()
        reader.join()
    assert forgetting._drop(name) == 1
    assert name not in partitions.transcript_partitions()
