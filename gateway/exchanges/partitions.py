"""Room for the rows to come: partitions are made well before their time."""

import re
from datetime import UTC, datetime

from django.db import connection

MONTHS_AHEAD = 3
DAYS_AHEAD = 7
TRANSCRIPTS = "gateway_transcript"

_DAY = re.compile(rf"{TRANSCRIPTS}_y(\d{{4}})m(\d\d)d(\d\d)")


def make() -> int:
    """Make what is missing; answers how many were made. Safe to run twice, and at once."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT farthing_make_partitions(%s) + farthing_make_transcript_partitions(%s)",
            [MONTHS_AHEAD, DAYS_AHEAD],
        )
        return int(cursor.fetchone()[0])


def transcript_partitions() -> list[str]:
    """Every partition of the transcripts, the oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
            " WHERE inhparent = %s::regclass ORDER BY relname",
            [TRANSCRIPTS],
        )
        return [name for (name,) in cursor.fetchall()]


def day_of(partition: str) -> datetime | None:
    """The first moment of a partition of transcripts; None of the one for all other days."""
    found = _DAY.fullmatch(partition)
    if found is None:
        return None
    year, month, day = map(int, found.groups())
    return datetime(year, month, day, tzinfo=UTC)
