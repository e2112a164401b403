"""Spend limits: set, raised, removed, told of. They are enforced where the money is held.

`farthing_hold` counts an exchange in every limit of its key, its key's member and its tenant, and
refuses what a hard one forbids, in the statement that takes the hold. A limit is in force for every
hold that begins after its commit, and counts what its running period spent before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from billing.errors import BadLimit
from billing.locks import lock_wallet
from billing.models import Account, LimitAction, LimitPeriod, SpendCounter, SpendLimit
from billing.models.limits import default_thresholds
from billing.money import text_from_nanos
from billing.wallets import open_wallet
from keys.models import ApiKey, AuditAction, Member, Tenant, User
from keys.services import record

PERCENT_MAX: Final = 1_000
TIMES_MIN: Final = 2
TIMES_MAX: Final = 1_000

_COUNT_AGAIN = "SELECT farthing_count_again(%s, %s)"
_PERIOD = "SELECT starts_at, resets_at FROM farthing_period(%s, %s, %s)"
_STANDING = """
SELECT l.limit_id, l.scope, l.period, l.action, l.starts_at, l.resets_at, l.amount_nanos,
       l.posted_nanos, l.held_nanos
FROM billing_account a CROSS JOIN LATERAL farthing_limits(a.id, %s, %s) l
WHERE a.kind = 'wallet' AND a.tenant_id = %s AND a.currency = %s AND l.period <> 'hour'
ORDER BY l.limit_id
"""


@dataclass(frozen=True, slots=True)
class LimitStanding:
    """A limit as it stands now. `resets_at` is None for a total."""

    limit_id: int
    scope: str
    period: str
    action: str
    starts_at: datetime
    resets_at: datetime | None
    amount_nanos: int
    posted_nanos: int
    held_nanos: int

    @property
    def remaining_nanos(self) -> int:
        return max(self.amount_nanos - self.posted_nanos - self.held_nanos, 0)


def set_limit(
    tenant: Tenant,
    period: LimitPeriod,
    amount_nanos: int,
    *,
    actor: str,
    action: LimitAction = LimitAction.HARD,
    key: ApiKey | None = None,
    user: User | None = None,
    thresholds: Sequence[int] | None = None,
    reason: str = "",
) -> SpendLimit:
    """Make the limit of this scope, period and action, or change its amount. Raises BadLimit.

    Without a key and a user it is the tenant's. Takes the wallet's lock for as long as counting
    the running period takes: moments, but for a total of a long history.
    """
    chosen = sorted(set(default_thresholds() if thresholds is None else thresholds))
    _check_scope(tenant, key, user)
    if amount_nanos < 0 or period == LimitPeriod.HOUR or action == LimitAction.PAUSE:
        raise BadLimit("A limit is for a day, a week, a month or in total, and not below zero.")
    if any(not 0 < percent <= PERCENT_MAX for percent in chosen):
        raise BadLimit(f"A threshold is 1 to {PERCENT_MAX} per cent.")
    wanted = SpendLimit(
        key=key,
        user=user,
        period=period,
        action=action,
        amount_nanos=amount_nanos,
        thresholds=chosen,
        time_zone=tenant.time_zone,
    )
    return _keep(tenant, wanted, AuditAction.LIMIT_SET, actor, reason)


def set_guard(
    key: ApiKey,
    times: int,
    floor_nanos: int,
    *,
    actor: str,
    action: LimitAction = LimitAction.WARN,
    reason: str = "",
) -> SpendLimit:
    """Watch a key for hours of more than `times` its usual spend, and more than `floor_nanos`.

    It warns or pauses the key; see billing.watching. Raises BadLimit.
    """
    if not TIMES_MIN <= times <= TIMES_MAX or floor_nanos < 0 or action == LimitAction.HARD:
        raise BadLimit(f"A guard is for {TIMES_MIN} to {TIMES_MAX} times, and warns or pauses.")
    wanted = SpendLimit(
        key=key,
        period=LimitPeriod.HOUR,
        action=action,
        amount_nanos=floor_nanos,
        times=times,
        thresholds=[],
        time_zone=key.tenant.time_zone,
    )
    return _keep(key.tenant, wanted, AuditAction.GUARD_SET, actor, reason)


def raise_limit(
    limit: SpendLimit, amount_nanos: int, *, until: datetime, actor: str, reason: str = ""
) -> SpendLimit:
    """Let more be spent until a moment; then the limit is what it was. Raises BadLimit."""
    with transaction.atomic():
        limit, wallet = _locked(limit)
        if amount_nanos <= limit.amount_nanos or until <= timezone.now():
            raise BadLimit("A limit is raised above what it is, until a time to come.")
        limit.raised_nanos, limit.raised_until = amount_nanos, until
        limit.save(update_fields=["raised_nanos", "raised_until"])
        _forget_told(limit, amount_nanos)
        detail = {"to": text_from_nanos(amount_nanos), "until": until.isoformat()}
        _leave_trail(AuditAction.LIMIT_RAISED, wallet, limit, actor, reason, detail)
    return limit


def remove_limit(limit: SpendLimit, *, actor: str, reason: str = "") -> None:
    """From now on it refuses and counts nothing. Removing twice is removing once."""
    with transaction.atomic():
        limit, wallet = _locked(limit)
        if limit.removed_at is not None:
            return
        limit.removed_at = timezone.now()
        limit.save(update_fields=["removed_at"])
        wallet.has_limits = wallet.limits.filter(removed_at=None).exists()
        wallet.save(update_fields=["has_limits"])
        _leave_trail(AuditAction.LIMIT_REMOVED, wallet, limit, actor, reason, {})


def standing(
    tenant: Tenant, *, key_id: int | None = None, now: datetime | None = None
) -> list[LimitStanding]:
    """The limits that a request of this key would be counted in; without a key the tenant's."""
    moment = now or timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(_STANDING, [key_id, moment, tenant.pk, tenant.currency])
        return [LimitStanding(*row) for row in cursor.fetchall()]


def period_at(period: str, moment: datetime, zone: str) -> tuple[datetime, datetime | None]:
    """When the period of a moment began in a time zone, and when the next one begins."""
    with connection.cursor() as cursor:
        cursor.execute(_PERIOD, [period, moment, zone])
        starts_at, resets_at = cursor.fetchone()
    return starts_at, resets_at


def follow_time_zones() -> int:
    """Count the running periods anew for tenants that moved to another time zone. A task."""
    moved = SpendLimit.objects.filter(removed_at=None).exclude(
        account__tenant__time_zone=F("time_zone")
    )
    return sum(_follow(limit) for limit in moved.order_by("account_id", "pk"))


def _follow(limit: SpendLimit) -> int:
    now = timezone.now()
    with transaction.atomic():
        limit, wallet = _locked(limit)
        zone = Tenant.objects.get(pk=wallet.tenant_id or 0).time_zone
        if limit.removed_at is not None or limit.time_zone == zone:
            return 0
        starts_at, _ = period_at(limit.period, now, limit.time_zone)
        SpendCounter.objects.filter(limit=limit, starts_at=starts_at).delete()
        limit.time_zone = zone
        limit.save(update_fields=["time_zone"])
        _count_again(limit, now)
    return 1


def _keep(
    tenant: Tenant, wanted: SpendLimit, act: AuditAction, actor: str, reason: str
) -> SpendLimit:
    open_wallet(tenant)
    with transaction.atomic():
        wallet = lock_wallet(tenant.pk, tenant.currency)
        limit, is_new = wallet.limits.get_or_create(
            key=wanted.key,
            user=wanted.user,
            period=wanted.period,
            action=wanted.action,
            removed_at=None,
            defaults={
                "amount_nanos": wanted.amount_nanos,
                "times": wanted.times,
                "thresholds": wanted.thresholds,
                "time_zone": wanted.time_zone,
            },
        )
        if is_new:
            wallet.has_limits = True
            wallet.save(update_fields=["has_limits"])
            _count_again(limit, timezone.now())
        else:
            _change(limit, wanted)
        detail = {"amount": text_from_nanos(wanted.amount_nanos), "times": wanted.times}
        _leave_trail(act, wallet, limit, actor, reason, detail)
    return limit


def _change(limit: SpendLimit, wanted: SpendLimit) -> None:
    """A new amount ends a temporary raise."""
    limit.amount_nanos, limit.times = wanted.amount_nanos, wanted.times
    limit.thresholds = wanted.thresholds
    limit.raised_nanos = limit.raised_until = None
    limit.save(
        update_fields=["amount_nanos", "times", "thresholds", "raised_nanos", "raised_until"]
    )
    _forget_told(limit, limit.amount_nanos)


def _forget_told(limit: SpendLimit, amount_nanos: int) -> None:
    """Thresholds that a larger amount puts ahead again are told again when they are crossed."""
    for counter in limit.counters.exclude(told_percent=0):
        passed = [p for p in limit.thresholds if counter.posted_nanos * 100 >= p * amount_nanos]
        counter.told_percent = min(counter.told_percent, max(passed, default=0))
        counter.save(update_fields=["told_percent"])


def _check_scope(tenant: Tenant, key: ApiKey | None, user: User | None) -> None:
    if key is not None and user is not None:
        raise BadLimit("A limit is for a key or for a member, not for both.")
    if key is not None and key.tenant_id != tenant.pk:
        raise BadLimit("There is no such key.")
    if user is not None and not Member.objects.filter(tenant=tenant, user=user).exists():
        raise BadLimit("There is no such member.")


def _locked(limit: SpendLimit) -> tuple[SpendLimit, Account]:
    account = limit.account
    wallet = lock_wallet(account.tenant_id or 0, account.currency)
    limit.refresh_from_db()
    return limit, wallet


def _count_again(limit: SpendLimit, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_AGAIN, [limit.pk, now])


def _leave_trail(
    action: AuditAction,
    wallet: Account,
    limit: SpendLimit,
    actor: str,
    reason: str,
    detail: dict[str, Any],
) -> None:
    record(
        action,
        tenant_id=wallet.tenant_id,
        actor=actor,
        subject=limit.public_id,
        reason=reason,
        detail={"scope": limit.scope, "period": limit.period, "action": limit.action, **detail},
    )
