"""Exchanges, the charges that resolve them, and what counting them needs."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from billing.models.prices import PlanTerms, Price


class ExchangeState(models.TextChoices):
    OPEN = "open"
    ESTIMATING = "estimating"
    SETTLED = "settled"


class Exchange(models.Model):
    """One relayed call and its hold. Ends with exactly one `Charge`.

    `price` and `terms` are the versions that rate it, whatever changes meanwhile. `credit_nanos`
    is what of the hold rests on credits, `counters` are the spend counters that count it; both
    are None where there is nothing of the kind.

    created_at: the request was accepted (or refused); ended_at: the last byte went out;
    settled_at: the charge was posted. first_byte_ms and duration_ms count from created_at.
    """

    id = models.UUIDField(primary_key=True)
    tenant_id = models.BigIntegerField()
    key_id = models.BigIntegerField()
    process_id = models.BigIntegerField()
    price = models.ForeignKey(
        Price, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    terms = models.ForeignKey(
        PlanTerms, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    hold_nanos = models.BigIntegerField(default=0)
    credit_nanos = models.BigIntegerField(null=True)
    counters = ArrayField(models.BigIntegerField(), null=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)
    first_byte_ms = models.IntegerField(null=True)
    duration_ms = models.IntegerField(null=True)
    status_code = models.SmallIntegerField(null=True)
    is_test = models.BooleanField(default=False)
    is_stream = models.BooleanField(default=False)
    state = models.TextField(choices=ExchangeState, default=ExchangeState.OPEN)
    currency = models.TextField()
    model = models.TextField()
    error_code = models.TextField(null=True)
    finish_reason = models.TextField(null=True)
    client_request_id = models.TextField(null=True)
    attempts = models.JSONField(default=list)
    message = models.JSONField(null=True)

    class Meta:
        managed = False
        db_table = "billing_exchange"

    def __str__(self) -> str:
        return str(self.id)


class UsageSource(models.TextChoices):
    VENDOR = "vendor"
    ESTIMATE = "estimate"
    NONE = "none"


class Charge(models.Model):
    """The one resolution of an exchange, and the quantities that it prices, stored disjoint.

    Append-only; `exchange` is unique, so that a second settlement is refused by the database.
    Its lines are `billing.rating.rate(usage, version)`: they are computed, never copied.
    """

    exchange = models.OneToOneField(
        Exchange,
        primary_key=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="charge",
    )
    tenant_id = models.BigIntegerField()
    charge_nanos = models.BigIntegerField()
    shortfall_nanos = models.BigIntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    cached_input_tokens = models.BigIntegerField(default=0)
    cache_write_tokens = models.BigIntegerField(default=0)
    image_input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    audio_input_tokens = models.BigIntegerField(default=0)
    audio_output_tokens = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    usage_source = models.TextField(choices=UsageSource)
    outcome = models.TextField()
    flags = models.JSONField(null=True)
    vendor_usage = models.JSONField(null=True)
    estimate = models.JSONField(null=True)

    class Meta:
        managed = False
        db_table = "billing_charge"

    def __str__(self) -> str:
        return f"charge of {self.exchange_id}"


class EstimateJob(models.Model):
    """What a worker needs to count an exchange; removed when the exchange is settled.

    Written while a long stream runs (`is_ready` false: a check-point, read by the sweeper if the
    gateway dies) and when an answer ended without usable usage (`is_ready` true).
    `request` and `answer` are zstd frames of the client's body and of the vendor's bytes.
    """

    exchange_id = models.UUIDField(primary_key=True)
    is_ready = models.BooleanField(default=False)
    attempt_count = models.SmallIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    due_at = models.DateTimeField(default=timezone.now)
    vendor_model = models.TextField()
    family = models.TextField(null=True)
    facts = models.JSONField(default=dict)
    request = models.BinaryField(null=True)
    answer = models.BinaryField(null=True)
    last_error = models.TextField(null=True)

    class Meta:
        indexes = [models.Index(fields=["due_at"], name="estimate_due")]

    def __str__(self) -> str:
        return str(self.exchange_id)


class LateSettlement(models.Model):
    """What a gateway said of an exchange after the sweep had settled it in its name.

    `settlement` is the item as it came. `moved_nanos` is what was charged on top of the charge, or
    given back (below zero), by `adjustment`; None until it is corrected, which is once.
    """

    exchange_id = models.UUIDField(primary_key=True)
    tenant_id = models.BigIntegerField()
    settlement = models.JSONField()
    received_at = models.DateTimeField(default=timezone.now)
    corrected_at = models.DateTimeField(null=True)
    moved_nanos = models.BigIntegerField(null=True)
    adjustment = models.ForeignKey(
        "billing.Adjustment", null=True, on_delete=models.PROTECT, related_name="+"
    )

    class Meta:
        indexes = [
            models.Index(
                fields=["received_at"],
                condition=models.Q(corrected_at__isnull=True),
                name="late_settlement_due",
            )
        ]

    def __str__(self) -> str:
        return str(self.exchange_id)


class GatewayProcess(models.Model):
    """A gateway process and when it was last heard of, so that its death is noticed.

    `troubles` are the vendors that it takes no calls to just now, as it said with its last beat.
    """

    started_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)
    stopped_at = models.DateTimeField(null=True)
    name = models.CharField(max_length=200)
    troubles = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))

    def __str__(self) -> str:
        return self.name
