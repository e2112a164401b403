"""How money comes into a wallet and leaves it again, other than by charges."""

from django.db import models
from django.utils import timezone

from billing.models.accounts import Account


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


class Credit(models.Model):
    """A grant of promotional credit: an account of its own. `external_id` grants once."""

    external_id = models.CharField(max_length=200, unique=True)
    tenant = models.ForeignKey("keys.Tenant", on_delete=models.PROTECT, related_name="+")
    account = models.OneToOneField(Account, on_delete=models.PROTECT, related_name="credit")
    link = models.UUIDField(unique=True)
    amount_nanos = models.BigIntegerField()
    reason = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.external_id


class RedemptionCode(models.Model):
    """Money for whoever brings the code, once. The code itself is nowhere: only its hash is.

    `credit_days` None tops the wallet up; else it is promotional credit that lasts so long.
    """

    code_hash = models.BinaryField(max_length=32, unique=True)
    last_four = models.CharField(max_length=4)
    amount_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    credit_days = models.PositiveSmallIntegerField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    redeemed_at = models.DateTimeField(null=True)
    redeemed_by = models.ForeignKey(
        "keys.Tenant", null=True, on_delete=models.PROTECT, related_name="+"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(redeemed_at__isnull=True, redeemed_by__isnull=True)
                | models.Q(redeemed_at__isnull=False, redeemed_by__isnull=False),
                name="code_redeemed_by_somebody",
            )
        ]

    def __str__(self) -> str:
        return f"…{self.last_four}"


class AdjustmentState(models.TextChoices):
    PROPOSED = "proposed"
    POSTED = "posted"
    DECLINED = "declined"


class Adjustment(models.Model):
    """A correction of a wallet, or the refund of a payment, by a person with a reason.

    `amount_nanos` is what the wallet gains; a refund's is below zero. Above a threshold it waits
    for a second person.
    """

    tenant = models.ForeignKey("keys.Tenant", on_delete=models.PROTECT, related_name="+")
    payment = models.ForeignKey(Payment, null=True, on_delete=models.PROTECT, related_name="+")
    link = models.UUIDField(unique=True)
    amount_nanos = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    reason = models.CharField(max_length=500)
    state = models.CharField(
        max_length=8, choices=AdjustmentState, default=AdjustmentState.PROPOSED
    )
    proposed_by = models.CharField(max_length=254)
    proposed_at = models.DateTimeField(default=timezone.now)
    decided_by = models.CharField(max_length=254, blank=True)
    decided_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=~models.Q(amount_nanos=0) & ~models.Q(reason=""),
                name="adjustment_has_a_reason",
            )
        ]

    def __str__(self) -> str:
        return f"adj_{self.pk}"
