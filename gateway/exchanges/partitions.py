"""Room for the rows to come: partitions are made well before their time."""

from django.db import connection

MONTHS_AHEAD = 3
DAYS_AHEAD = 7


def make() -> int:
    """Make what is missing; answers how many were made. Safe to run twice, and at once."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT farthing_make_partitions(%s) + farthing_make_transcript_partitions(%s)",
            [MONTHS_AHEAD, DAYS_AHEAD],
        )
        return int(cursor.fetchone()[0])
