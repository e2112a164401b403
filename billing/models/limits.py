"""What may be spent, and what was."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from billing.models.accounts import Account


class LimitPeriod(models.TextChoices):
    HOUR = "hour"  # of UTC; for velocity guards only
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


class LimitAction(models.TextChoices):
    HARD = "hard"  # refuse what would pass it
    WARN = "warn"  # tell, refuse nothing
    PAUSE = "pause"  # of a velocity guard: pause the key


def default_thresholds() -> list[int]:
    return [80, 100]


class SpendLimit(models.Model):
    """What a key, a member's keys, or a tenant may spend in a period of its time zone.

    `raised_nanos` stands in for `amount_nanos` until `raised_until`. `thresholds` are per cent.
    With `times` it is a velocity guard: it acts on a key that spends more than `amount_nanos` in
    an hour and more than `times` its usual hour.
    """

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="limits")
    key = models.ForeignKey("keys.ApiKey", null=True, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey("keys.User", null=True, on_delete=models.CASCADE, related_name="+")
    period = models.CharField(max_length=5, choices=LimitPeriod)
    action = models.CharField(max_length=5, choices=LimitAction)
    amount_nanos = models.BigIntegerField()
    raised_nanos = models.BigIntegerField(null=True)
    raised_until = models.DateTimeField(null=True)
    times = models.PositiveSmallIntegerField(null=True)
    thresholds = ArrayField(models.PositiveSmallIntegerField(), default=default_thresholds)
    time_zone = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    removed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["account", "key", "user", "period", "action"],
                condition=models.Q(removed_at__isnull=True),
                name="limit_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=models.Q(amount_nanos__gte=0)
                & (models.Q(key__isnull=True) | models.Q(user__isnull=True)),
                name="limit_of_one_scope",
            ),
            models.CheckConstraint(
                condition=(
                    models.Q(period="hour", times__isnull=False, key__isnull=False)
                    & ~models.Q(action="hard")
                )
                | (
                    models.Q(times__isnull=True)
                    & ~models.Q(period="hour")
                    & ~models.Q(action="pause")
                ),
                name="guard_is_hourly",
            ),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return f"lim_{self.pk}"

    @property
    def scope(self) -> str:
        """`key | member | tenant`."""
        if self.key_id is not None:
            return "key"
        return "member" if self.user_id is not None else "tenant"


class SpendCounter(models.Model):
    """What a limit has counted since `starts_at`. Moved by the statements that move the money.

    `told_percent` is the highest threshold that was told, so that each is told once.
    """

    limit = models.ForeignKey(SpendLimit, on_delete=models.CASCADE, related_name="counters")
    starts_at = models.DateTimeField()
    posted_nanos = models.BigIntegerField(default=0)
    held_nanos = models.BigIntegerField(default=0)
    told_percent = models.PositiveSmallIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["limit", "starts_at"], name="counter_once"),
            models.CheckConstraint(
                condition=models.Q(posted_nanos__gte=0, held_nanos__gte=0),
                name="counter_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.limit_id} since {self.starts_at:%Y-%m-%d}"
