import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, connections

from gateway.exchanges import partitions

TABLES = "SELECT count(*) FROM pg_inherits"


def count() -> int:
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        return int(cursor.fetchone()[0])


def partition_of(table: str, moment: datetime) -> str:
    """Which partition takes an exchange of that time."""
    milliseconds = int(moment.timestamp() * 1_000)
    number = (milliseconds << 80) | (0x7 << 76) | (0b10 << 62)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} (exchange_id, tenant_id, legs) VALUES (%s, 1, '{{}}')"
            " RETURNING tableoid::regclass::text",
            [f"{number:032x}"],
        )
        return str(cursor.fetchone()[0])


def test_making_twice_makes_nothing_more(db) -> None:
    partitions.make()
    before = count()
    assert partitions.make() == 0
    assert count() == before


def test_every_day_ahead_has_a_partition_of_its_own(db) -> None:
    partitions.make()
    now = datetime.now(UTC)
    days = [now + timedelta(days=day) for day in range(partitions.DAYS_AHEAD)]
    found = {partition_of("gateway_transcript", day) for day in days}
    assert len(found) == partitions.DAYS_AHEAD
    assert not any("default" in name for name in found)


@pytest.mark.usefixtures("committed")
def test_makers_at_once_do_not_disturb_each_other() -> None:
    barrier = threading.Barrier(3)

    def make(_number: int) -> int:
        barrier.wait()
        try:
            return partitions.make()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(make, range(3))) == 0
