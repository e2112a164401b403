"""Accounts, and the transfers between them."""

from django.db import models


class AccountKind(models.TextChoices):
    WALLET = "wallet"  # a tenant's money; its balance is kept, so that a hold can be conditional
    FUNDING = "funding"  # where top-ups come from
    REVENUE = "revenue"  # where charges go
    ADJUSTMENTS = "adjustments"  # corrections, with a reason
    PROMOTIONS = "promotions"  # where promotional credit comes from, and where it expires to
    CREDIT = "credit"  # a tenant's promotional credit: one account a grant, spent before the wallet


class Account(models.Model):
    """One side of a transfer.

    `posted_nanos` and `held_nanos` are kept for a tenant's accounts only. An operator's account is
    summed from its transfers when asked: a balance that every request wrote would serialise the
    fleet.

    The wallet's row lock guards the tenant's credits and spend counters of its currency too.
    `has_credits` and `has_limits` are hints on the wallet, so that the hot path looks for neither
    where there is none; `expires_at` is a credit's.
    """

    tenant = models.ForeignKey("keys.Tenant", null=True, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=16, choices=AccountKind)
    currency = models.CharField(max_length=3)
    posted_nanos = models.BigIntegerField(default=0)
    held_nanos = models.BigIntegerField(default=0)
    credit_limit_nanos = models.BigIntegerField(default=0)
    expires_at = models.DateTimeField(null=True)
    has_credits = models.BooleanField(default=False)
    has_limits = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "kind", "currency"],
                condition=~models.Q(kind="credit"),
                name="account_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=models.Q(kind="credit", expires_at__isnull=False)
                | (~models.Q(kind="credit") & models.Q(expires_at__isnull=True)),
                name="credit_expires",
            ),
            models.CheckConstraint(condition=models.Q(held_nanos__gte=0), name="held_not_negative"),
            models.CheckConstraint(
                condition=models.Q(
                    posted_nanos__gte=models.F("held_nanos") - models.F("credit_limit_nanos")
                ),
                name="never_overspent",
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "expires_at"],
                condition=models.Q(kind="credit"),
                name="credit_by_tenant",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.tenant_id or ''} {self.currency}"

    @property
    def available_nanos(self) -> int:
        return self.posted_nanos + self.credit_limit_nanos - self.held_nanos


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
    REFUND = "refund"
    GRANT = "grant"
    EXPIRY = "expiry"
    FEE = "fee"


class Transfer(models.Model):
    """Money from a debit account to a credit account. Append-only.

    `link` is the exchange that it belongs to, or an id of its own kind of event (a top-up).
    An exchange holds on its tenant's credits and wallet, on each with a pending transfer of its
    own (and one more for each extension). Each account is then posted, for its part of the charge,
    or voided, for all that was held on it. What was held and not posted is free again.
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
