"""What is told and done about spend, off the path: tasks that may run often, twice, or at once.

A counter remembers what was told of it, and one conditional statement says who tells it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from billing.messages import tell
from billing.models import LimitAction, MessageCategory, SpendCounter, SpendLimit
from billing.money import text_from_nanos
from keys.models import ApiKey, AuditAction
from keys.services import record

USUAL_HOURS: Final = 168  # a week
USUAL_HOURS_MIN: Final = 24  # a younger guard's hours are spread over so many
COUNTERS_KEPT: Final = timedelta(days=400)
GUARD_COUNTERS_KEPT: Final = timedelta(hours=USUAL_HOURS + 24)
ACTOR: Final = "velocity guard"

# Counters whose highest passed threshold was not told. A period that is just over counts still.
_CROSSED: Final = """
SELECT c.id, max(t.percent)
FROM billing_spendlimit l
JOIN billing_spendcounter c ON c.limit_id = l.id
CROSS JOIN LATERAL farthing_period(l.period, c.starts_at, l.time_zone) p
CROSS JOIN LATERAL unnest(l.thresholds) AS t(percent)
WHERE l.removed_at IS NULL AND l.times IS NULL AND c.posted_nanos > 0
  AND (p.resets_at IS NULL OR p.resets_at > %(now)s - interval '1 hour')
  AND t.percent > c.told_percent
  AND c.posted_nanos::numeric * 100 >= t.percent * (
      CASE WHEN l.raised_until > %(now)s THEN l.raised_nanos ELSE l.amount_nanos END)::numeric
GROUP BY c.id
ORDER BY c.id
"""

# Guards whose running hour is far beyond the usual one: the mean of the week before it.
_RACING: Final = """
SELECT c.id, c.posted_nanos + c.held_nanos, u.usual_nanos
FROM billing_spendlimit l
JOIN billing_spendcounter c
    ON c.limit_id = l.id AND c.starts_at = date_trunc('hour', %(now)s, 'UTC')
CROSS JOIN LATERAL (
    SELECT coalesce(sum(b.posted_nanos), 0) / least(%(hours)s, greatest(%(hours_min)s,
               extract(epoch FROM %(now)s - l.created_at) / 3600)) AS usual_nanos
    FROM billing_spendcounter b
    WHERE b.limit_id = l.id AND b.starts_at < c.starts_at
      AND b.starts_at >= c.starts_at - make_interval(hours => %(hours)s)) u
WHERE l.removed_at IS NULL AND l.times IS NOT NULL AND c.told_percent = 0
  AND c.posted_nanos + c.held_nanos > l.amount_nanos
  AND c.posted_nanos + c.held_nanos > l.times * u.usual_nanos
ORDER BY c.id
"""


@dataclass(frozen=True, slots=True)
class Racing:
    """A counter's hour beside the usual one."""

    counter_id: int
    hour_nanos: int
    usual_nanos: int


def tell_crossings(now: datetime | None = None) -> int:
    """Tell tenants of thresholds that their spend has passed, each once; answers how many."""
    with connection.cursor() as cursor:
        cursor.execute(_CROSSED, {"now": now or timezone.now()})
        crossed = cursor.fetchall()
    return sum(_tell_crossing(counter_id, percent) for counter_id, percent in crossed)


def _tell_crossing(counter_id: int, percent: int) -> bool:
    with transaction.atomic():
        counter = _claimed(counter_id, percent)
        if counter is None:
            return False
        limit = counter.limit
        amount = f"{text_from_nanos(limit.amount_nanos)} {limit.account.currency}"
        when = "in total" if limit.period == "total" else f"a {limit.period}"
        _tell(limit, f"{_spender(limit)} passed {percent} % of {amount} {when}.")
    return True


def watch_velocity(now: datetime | None = None) -> int:
    """Warn of keys that spend many times what is usual, or pause them; answers how many.

    Each guard acts once an hour.
    """
    now = now or timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(_RACING, {"now": now, "hours": USUAL_HOURS, "hours_min": USUAL_HOURS_MIN})
        found = [Racing(row[0], int(row[1]), int(row[2])) for row in cursor.fetchall()]
    return sum(_act_on(racing, now) for racing in found)


def _act_on(racing: Racing, now: datetime) -> bool:
    with transaction.atomic():
        counter = _claimed(racing.counter_id, 100)
        if counter is None:
            return False
        limit = counter.limit
        is_paused = limit.action == LimitAction.PAUSE and _pause(limit, now)
        spent, usual = text_from_nanos(racing.hour_nanos), text_from_nanos(racing.usual_nanos)
        words = (
            f"{_spender(limit)} spent {spent} {limit.account.currency} within an hour; "
            f"usual is {usual}."
        )
        _tell(limit, f"{words} The key is paused." if is_paused else words)
    return True


def _pause(limit: SpendLimit, now: datetime) -> bool:
    key = limit.key
    if key is None:
        return False
    if not ApiKey.objects.filter(pk=key.pk, paused_at=None, revoked_at=None).update(paused_at=now):
        return False
    record(
        AuditAction.KEY_PAUSED,
        tenant_id=limit.account.tenant_id,
        actor=ACTOR,
        subject=key.public_id,
        reason=f"It spent more than {limit.times} times its usual hour.",
    )
    return True


def forget_counters(now: datetime | None = None) -> int:
    """Drop counters of periods long over, on which nothing is held; totals stay."""
    now = now or timezone.now()
    idle = SpendCounter.objects.filter(held_nanos=0).exclude(limit__period="total")
    guards = idle.filter(limit__period="hour", starts_at__lt=now - GUARD_COUNTERS_KEPT)
    others = idle.filter(starts_at__lt=now - COUNTERS_KEPT)
    return guards.delete()[0] + others.delete()[0]


def _claimed(counter_id: int, percent: int) -> SpendCounter | None:
    """The counter, if nobody has told so much of it yet."""
    counters = SpendCounter.objects.filter(pk=counter_id, told_percent__lt=percent)
    if not counters.update(told_percent=percent):
        return None
    related = ("limit__account", "limit__key", "limit__user")
    return SpendCounter.objects.select_related(*related).get(pk=counter_id)


def _spender(limit: SpendLimit) -> str:
    if limit.key is not None:
        return f"Key {limit.key.name} ({limit.key.masked})"
    return "Your organisation" if limit.user is None else f"Keys of {limit.user.email}"


def _tell(limit: SpendLimit, words: str) -> None:
    tell(
        limit.account.tenant_id or 0,
        MessageCategory.LIMIT,
        words,
        user_status=None,
        exchange_id=None,
        nanos=0,
        currency=limit.account.currency,
        is_test=False,
    )
