"""The tables of money. What may never change is guarded by triggers: see sql/guards.sql.

Exchanges, transfers and charges grow without end. They are partitioned by month over a UUIDv7,
whose first 48 bits are the time: the id alone tells the partition, so `once` stays one unique
index. sql/tables.sql creates them; the classes here describe them to Django.
"""

from django.db import models
from django.utils import timezone


class AccountKind(models.TextChoices):
    WALLET = "wallet"  # a tenant's money; its balance is kept, so that a hold can be conditional
    FUNDING = "funding"  # where top-ups come from
    REVENUE = "revenue"  # where charges go
    ADJUSTMENTS = "adjustments"  # corrections, with a reason


class Account(models.Model):
    """One side of a transfer.

    `posted_nanos` and `held_nanos` are kept for wallets only. An operator's account is summed
    from its transfers when asked: a balance that every request wrote would serialise the fleet.
    """

    tenant = models.ForeignKey("keys.Tenant", null=True, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=16, choices=AccountKind)
    currency = models.CharField(max_length=3)
    posted_nanos = models.BigIntegerField(default=0)
    held_nanos = models.BigIntegerField(default=0)
    credit_limit_nanos = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "kind", "currency"],
                name="account_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(condition=models.Q(held_nanos__gte=0), name="held_not_negative"),
            models.CheckConstraint(
                condition=models.Q(
                    posted_nanos__gte=models.F("held_nanos") - models.F("credit_limit_nanos")
                ),
                name="never_overspent",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.tenant_id or ''} {self.currency}"

    @property
    def available_nanos(self) -> int:
        return self.posted_nanos + self.credit_limit_nanos - self.held_nanos


class Price(models.Model):
    """One version of what a model costs, in nanos per million tokens. Immutable.

    A None is "no price of its own": the other classes of a prompt fall back to input, reasoning
    and audio output to output. A version without input or output is no price: from then on the
    model is refused. Free is an explicit 0.

    `tiers` ascend by `above_prompt_tokens`; each names the `…_nanos` that it changes for a whole
    request whose prompt is longer.
    """

    model = models.CharField(max_length=256)
    currency = models.CharField(max_length=3)
    effective_from = models.DateTimeField()
    input_nanos = models.BigIntegerField(null=True)
    output_nanos = models.BigIntegerField(null=True)
    cached_input_nanos = models.BigIntegerField(null=True)
    cache_write_nanos = models.BigIntegerField(null=True)
    image_input_nanos = models.BigIntegerField(null=True)
    audio_input_nanos = models.BigIntegerField(null=True)
    reasoning_nanos = models.BigIntegerField(null=True)
    audio_output_nanos = models.BigIntegerField(null=True)
    per_request_nanos = models.BigIntegerField(default=0)  # nanos a request, not per million
    tiers = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["model", "currency", "effective_from"], name="price_version_once"
            ),
            models.CheckConstraint(
                condition=models.Q(
                    input_nanos__gte=0,
                    output_nanos__gte=0,
                    cached_input_nanos__gte=0,
                    cache_write_nanos__gte=0,
                    image_input_nanos__gte=0,
                    audio_input_nanos__gte=0,
                    reasoning_nanos__gte=0,
                    audio_output_nanos__gte=0,
                    per_request_nanos__gte=0,
                ),
                name="price_not_negative",
            ),
        ]

    @property
    def is_complete(self) -> bool:
        return self.input_nanos is not None and self.output_nanos is not None

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return f"pv_{self.pk}"


class ExchangeState(models.TextChoices):
    OPEN = "open"
    ESTIMATING = "estimating"
    SETTLED = "settled"


class Exchange(models.Model):
    """One relayed call and its hold. Ends with exactly one `Charge`.

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
    hold_nanos = models.BigIntegerField(default=0)
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
    Its lines are `billing.rating.rate(usage, price)`: they are computed, never copied.
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


class Phase(models.IntegerChoices):
    """Two-phase transfers, after TigerBeetle: a pending one is posted or voided, once."""

    SINGLE = 0
    PENDING = 1
    POSTED = 2
    VOIDED = 3


class TransferCode(models.TextChoices):
    TOP_UP = "top_up"
    HOLD = "hold"
    CHARGE = "charge"
    RELEASE = "release"
    ADJUSTMENT = "adjustment"


class Transfer(models.Model):
    """Money from a debit account to a credit account. Append-only.

    `link` is the exchange that it belongs to, or an id of its own kind of event (a top-up).
    A posted transfer's amount is the charge; the rest of what was held is free again. A voided
    transfer's amount is what was held.
    """

    id = models.BigAutoField(primary_key=True)
    link = models.UUIDField()
    tenant_id = models.BigIntegerField()
    debit_account_id = models.BigIntegerField()
    credit_account_id = models.BigIntegerField()
    amount_nanos = models.BigIntegerField()
    phase = models.SmallIntegerField(choices=Phase)
    code = models.TextField(choices=TransferCode)
    created_at = models.DateTimeField()
    reason = models.TextField(null=True)

    class Meta:
        managed = False
        db_table = "billing_transfer"

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return f"tr_{self.pk}"


class Payment(models.Model):
    """Money that came from outside. `external_id` is unique: a payment credits once."""

    external_id = models.CharField(max_length=200, unique=True)
    tenant = models.ForeignKey("keys.Tenant", on_delete=models.PROTECT, related_name="+")
    link = models.UUIDField(unique=True)
    amount_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.external_id


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


class GatewayProcess(models.Model):
    """A gateway process and when it was last heard of, so that its death is noticed."""

    started_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)
    stopped_at = models.DateTimeField(null=True)
    name = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.name


class MessageCategory(models.TextChoices):
    ESTIMATE = "estimate"
    SHORTFALL = "shortfall"


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
    last_exchange_id = models.UUIDField()
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


class AuditRun(models.Model):
    """One run of the ledger's audit. `differences` is empty, or somebody is called."""

    started_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    figures = models.JSONField(default=dict)
    differences = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"audit of {self.started_at:%Y-%m-%d %H:%M}"
