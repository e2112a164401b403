"""What tenants are told, and what the audit found."""

from django.db import models
from django.utils import timezone


class MessageCategory(models.TextChoices):
    ESTIMATE = "estimate"
    SHORTFALL = "shortfall"
    LIMIT = "limit"
    CORRECTION = "correction"


class Message(models.Model):
    """What a tenant is told. Ten thousand of a kind are one row with a count, until archived."""

    tenant = models.ForeignKey("keys.Tenant", on_delete=models.CASCADE, related_name="+")
    category = models.CharField(max_length=20, choices=MessageCategory)
    user_message = models.CharField(max_length=300)
    user_status = models.SmallIntegerField(null=True)
    is_test = models.BooleanField(default=False)
    count = models.BigIntegerField(default=1)
    total_nanos = models.BigIntegerField(default=0)
    currency = models.CharField(max_length=3)
    first_at = models.DateTimeField(default=timezone.now)
    last_at = models.DateTimeField(default=timezone.now)
    last_exchange_id = models.UUIDField(null=True)  # None where it is about no exchange
    read_at = models.DateTimeField(null=True)
    archived_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "category", "user_message", "is_test"],
                condition=models.Q(archived_at__isnull=True),
                name="one_open_message_a_kind",
            )
        ]
        indexes = [models.Index(fields=["tenant", "-last_at"], name="message_by_tenant")]

    def __str__(self) -> str:
        return f"{self.user_message} ×{self.count}"


class NoticeKind(models.TextChoices):
    ESTIMATE_FAILS = "estimate_fails"
    ESTIMATE_GIVEN_UP = "estimate_given_up"
    LATE_SETTLEMENT = "late_settlement"
    NEVER_SETTLED = "never_settled"


class StaffNotice(models.Model):
    """What the operator's people should look at; once for each kind and exchange."""

    kind = models.CharField(max_length=32, choices=NoticeKind)
    tenant_id = models.BigIntegerField()
    exchange_id = models.UUIDField()
    words = models.CharField(max_length=300)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "exchange_id"], name="one_notice_a_kind")
        ]
        indexes = [models.Index(fields=["-at"], name="notice_by_time")]

    def __str__(self) -> str:
        return self.words


class AuditRun(models.Model):
    """One run of the ledger's audit. `differences` is empty, or somebody is called."""

    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    figures = models.JSONField(default=dict)
    differences = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"audit of {self.started_at:%Y-%m-%d %H:%M}"
