"""The sweep: what a lost task, a dead gateway or a crash has left open gets its one settlement.

Every part may run twice, late, or beside itself. Who is dead is judged here; what is charged for
what a dead gateway has delivered is counted in `estimating`.
"""

import logging
import time
from typing import Final

from django.conf import settings
from django.db import connection
from django.utils import timezone

from billing.ledger import Facts, Settlement, settle_now
from billing.models import EstimateJob, Exchange, NoticeKind
from billing.notices import notify_staff
from billing.processes import LIFE_LOCK, SWEEP_PROCESS
from billing.usage import Usage
from gateway.exchanges import estimating

logger = logging.getLogger(__name__)

EXCHANGES_A_SWEEP: Final = 500
SILENT_AT_MOST_S: Final = 15 * 60
OPEN_MARGIN_S: Final = 300  # beyond the sum of its vendors' time-outs: drain, retries, clocks
OPEN_AT_LEAST_S: Final = 15 * 60  # where no route is left to ask
BEAT_EVERY_S: Final = 1.0
PAUSE_S: Final = 10  # two sweeps: a longer one says that PostgreSQL did not answer

# The sweep's own row says since when PostgreSQL has answered it without a pause.
_BEAT = """
INSERT INTO billing_gatewayprocess AS p (id, started_at, seen_at, name)
VALUES (%(id)s, now(), now(), 'sweep')
ON CONFLICT (id) DO UPDATE
SET started_at = CASE WHEN p.seen_at < now() - make_interval(secs => %(pause)s)
                      THEN now() ELSE p.started_at END,
    seen_at = now()
RETURNING started_at < now() - make_interval(secs => %(dead)s)
"""

# A gateway that is too busy to beat still holds its lock and keeps its streams, for so long that a
# frozen one does not keep money held for ever. One that beats keeps them beyond every time-out of
# their vendors, and no longer: whatever became of them there, they must end.
_ABANDONED = """
WITH bounds AS (
    SELECT m.name AS model, sum(v.total_timeout_ms) / 1000 + %(margin)s AS open_s
    FROM gateway_model m
    JOIN gateway_route r ON r.model_id = m.id
    JOIN gateway_vendor v ON v.id = r.vendor_id
    GROUP BY m.name
)
SELECT e.id, p.id IS NOT NULL AND p.stopped_at IS NULL
             AND p.seen_at >= now() - make_interval(secs => %(dead)s) AS is_alive
FROM billing_exchange e
LEFT JOIN billing_gatewayprocess p ON p.id = e.process_id
LEFT JOIN bounds b ON b.model = e.model
LEFT JOIN billing_estimatejob j ON j.exchange_id = e.id
WHERE e.state <> 'settled' AND j.is_ready IS NOT TRUE
  AND (p.id IS NULL OR p.stopped_at IS NOT NULL
       OR e.created_at < now() - make_interval(secs => coalesce(b.open_s, %(open)s))
       OR p.seen_at < now() - make_interval(secs => %(silent)s)
       OR (p.seen_at < now() - make_interval(secs => %(dead)s) AND NOT EXISTS (
            SELECT 1 FROM pg_locks l
            WHERE l.locktype = 'advisory' AND l.classid = %(lock)s
              AND l.objid = p.id::bigint::oid AND l.granted
              AND l.database = (SELECT d.oid FROM pg_database d
                                WHERE d.datname = current_database()))))
ORDER BY e.id LIMIT %(most)s
"""


def sweep() -> int:
    """Settle what is due; answers how many exchanges it took up."""
    watch = _Watch()
    taken = 0
    if watch.beat():
        for exchange, is_alive in _abandoned():
            taken += 1
            try:
                _take_over(exchange, is_alive=is_alive)
            except Exception:  # the next sweep tries again; its neighbours do not wait for it
                logger.exception("Exchange %s could not be taken over", exchange.id)
            watch.beat_again()
    taken += estimating.settle_due(watch.beat_again)
    watch.beat()
    return taken


class _Watch:
    """Whether silence means death.

    A gateway that cannot reach PostgreSQL cannot beat, and after an outage, a freeze or a restart
    of PostgreSQL none has beaten: nobody is dead before the sweep itself has been answered for as
    long as a living gateway may be silent.
    """

    def __init__(self) -> None:
        self._beaten_s = 0.0

    def beat(self) -> bool:
        dead_s = settings.GATEWAY_DEAD_AFTER_S
        values = {"id": SWEEP_PROCESS, "dead": dead_s, "pause": PAUSE_S}
        with connection.cursor() as cursor:
            cursor.execute(_BEAT, values)
            row = cursor.fetchone()
        self._beaten_s = time.monotonic()
        return bool(row and row[0])

    def beat_again(self) -> None:
        """A long sweep is no pause."""
        if time.monotonic() - self._beaten_s > BEAT_EVERY_S:
            self.beat()


def _abandoned() -> list[tuple[Exchange, bool]]:
    """Unsettled exchanges that nobody is at work on, and whether their gateway lives."""
    with connection.cursor() as cursor:
        cursor.execute(
            _ABANDONED,
            {
                "dead": settings.GATEWAY_DEAD_AFTER_S,
                "silent": SILENT_AT_MOST_S,
                "margin": OPEN_MARGIN_S,
                "open": OPEN_AT_LEAST_S,
                "lock": LIFE_LOCK,
                "most": EXCHANGES_A_SWEEP,
            },
        )
        lives = dict(cursor.fetchall())
    return [
        (exchange, lives[exchange.id])
        for exchange in Exchange.objects.filter(id__in=lives).order_by("id")
    ]


def _take_over(exchange: Exchange, *, is_alive: bool) -> None:
    """What was check-pointed is charged at estimate; without a check-point nothing is."""
    if is_alive:
        logger.error("Exchange %s was left open by a living gateway", exchange.id)
        notify_staff(NoticeKind.NEVER_SETTLED, exchange.id, exchange.tenant_id)
    if EstimateJob.objects.filter(exchange_id=exchange.id).update(is_ready=True):
        return
    settlement = Settlement(
        exchange_id=exchange.id,
        tenant_id=exchange.tenant_id,
        currency=exchange.currency,
        cost_nanos=0,
        usage=Usage(),
        usage_source="none",
        outcome="gateway_died",
        settled_at=timezone.now(),
        facts=Facts(error_code="gateway_died", status_code=exchange.status_code or 502),
    )
    settle_now([settlement])
