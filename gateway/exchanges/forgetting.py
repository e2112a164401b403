"""What has had its time: removed in short statements, so that nothing waits for it."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.db import OperationalError, connection, transaction
from django.db.models import Max
from psycopg import sql

from gateway.exchanges.partitions import day_of, transcript_partitions
from gateway.relay.idempotency import FORGET, FORGET_ROWS, KEPT_HOURS
from keys.models import Tenant
from keys.transcripts import DAYS_MAX

logger = logging.getLogger(__name__)

BATCHES_MAX = 100
TRANSCRIPT_ROWS = 1_000  # of one statement
LOCK_WAIT_MS = 1_000  # a partition that is in use for longer is dropped next time
DAY = timedelta(days=1)

# By the primary key: identifiers begin with the time, so a partition's days are its first rows.
REMOVE = """
DELETE FROM {table} WHERE (exchange_id, tenant_id) IN (
    SELECT exchange_id, tenant_id FROM {table}
    WHERE exchange_id < farthing_first_uuid(%s)
      AND (%s::bigint[] IS NULL OR tenant_id = ANY(%s::bigint[]))
    LIMIT %s)
"""


def forget_idempotent_answers() -> int:
    """Remove answers older than a day; answers how many. What is left is next time's."""
    removed = 0
    for _ in range(BATCHES_MAX):
        with connection.cursor() as cursor:
            cursor.execute(FORGET, [KEPT_HOURS, FORGET_ROWS])
            removed += cursor.rowcount
            if cursor.rowcount < FORGET_ROWS:
                break
    return removed


def forget_transcripts(now: datetime) -> int:
    """Remove what was said before the days that each tenant keeps; answers how many things.

    A day that nobody keeps any more leaves as a whole, its partition dropped; of younger ones the
    rows of those who keep less are deleted. Called often, so that it has little to do each time:
    what cannot be had now is next time's.
    """
    longest = Tenant.objects.aggregate(days=Max("transcript_days"))["days"] or DAYS_MAX
    horizon = now - longest * DAY
    removed = 0
    for name in transcript_partitions():
        day = day_of(name)
        if day is None:
            removed += _remove(name, horizon, None)
        elif day + DAY <= horizon:
            removed += _drop(name)
        else:
            removed += sum(
                _remove(name, now - days * DAY, tenants)
                for days, tenants in _who_keep_less(longest)
                if day < now - days * DAY
            )
    return removed


def _who_keep_less(longest: int) -> Iterator[tuple[int, list[int]]]:
    """Tenants by the days that they keep."""
    shorter = Tenant.objects.filter(transcript_days__lt=longest).order_by("transcript_days", "pk")
    by_days: dict[int, list[int]] = {}
    for days, tenant_id in shorter.values_list("transcript_days", "pk"):
        by_days.setdefault(days, []).append(tenant_id)
    yield from by_days.items()


def _drop(name: str) -> int:
    """Readers and the scribe wait for at most `LOCK_WAIT_MS`."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_WAIT_MS}ms"])
            cursor.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
    except OperationalError as error:
        logger.warning("%s is not dropped yet: %s", name, type(error.__cause__).__name__)
        return 0
    return 1


def _remove(name: str, before: datetime, tenants: list[int] | None) -> int:
    statement = sql.SQL(REMOVE).format(table=sql.Identifier(name))
    removed = 0
    for _ in range(BATCHES_MAX):
        with connection.cursor() as cursor:
            cursor.execute(statement, [before.astimezone(UTC), tenants, tenants, TRANSCRIPT_ROWS])
            removed += cursor.rowcount
            if cursor.rowcount < TRANSCRIPT_ROWS:
                break
    return removed
