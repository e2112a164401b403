"""What has had its time: removed in short statements, so that nothing waits for it."""

from django.db import connection

from gateway.relay.idempotency import FORGET, FORGET_ROWS, KEPT_HOURS

BATCHES_MAX = 100


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
