"""Invoices, their lines, what stands behind each line, and the runs that drafted them."""

from typing import Final

from django.db import models
from django.utils import timezone

from billing.models.prices import Plan, PlanTerms, Price
from billing.models.wallets import Adjustment, Credit

PUBLIC_PREFIX: Final = "inv_"


class InvoiceState(models.TextChoices):
    DRAFT = "draft"
    REVIEW = "review"
    ISSUED = "issued"
    PAID = "paid"
    VOID = "void"


class InvoiceSeries(models.Model):
    """The counter of one series: its row is locked by whoever takes the next number."""

    name = models.CharField(max_length=8, primary_key=True)
    last_number = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.name} up to {self.last_number}"


class Invoice(models.Model):
    """What one tenant was charged in one month, as a document. Frozen from review on, by a trigger.

    `net_nanos` is the sum of the lines without the carried remainder. net + carried in is the exact
    sum, `total_nanos` is that sum rounded once to a cent, and what is over is carried on.
    `starts_at` ≤ moment < `ends_at` is the month in the tenant's time zone of then; exchanges of
    before that settled late are on it too. Before `open_from` no exchange waits for an invoice.
    """

    tenant = models.ForeignKey("keys.Tenant", on_delete=models.PROTECT, related_name="+")
    tenant_name = models.CharField(max_length=100)
    plan_name = models.CharField(max_length=64, blank=True)
    currency = models.CharField(max_length=3)
    month = models.DateField()
    time_zone = models.CharField(max_length=64)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    open_from = models.DateTimeField()
    state = models.CharField(max_length=6, choices=InvoiceState, default=InvoiceState.DRAFT)
    state_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now)
    net_nanos = models.BigIntegerField(default=0)
    carried_in_nanos = models.BigIntegerField(default=0)
    total_nanos = models.BigIntegerField(default=0)
    exchange_count = models.BigIntegerField(default=0)
    series = models.CharField(max_length=8, null=True)
    number = models.PositiveIntegerField(null=True)
    issued_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "currency", "month"],
                condition=~models.Q(state="void"),
                name="invoice_once_a_month",
            ),
            models.UniqueConstraint(fields=["series", "number"], name="invoice_number_once"),
            models.CheckConstraint(
                condition=models.Q(total_nanos__gte=0), name="invoice_total_not_negative"
            ),
            models.CheckConstraint(
                condition=models.Q(series__isnull=True, number__isnull=True, issued_at__isnull=True)
                | models.Q(series__isnull=False, number__isnull=False, issued_at__isnull=False),
                name="invoice_number_is_whole",
            ),
            models.CheckConstraint(
                condition=models.Q(state="void")
                | models.Q(state__in=["draft", "review"], number__isnull=True)
                | models.Q(state__in=["issued", "paid"], number__isnull=False),
                name="invoice_number_on_issue",
            ),
        ]
        indexes = [models.Index(fields=["state", "-id"], name="invoice_by_state")]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        return f"{PUBLIC_PREFIX}{self.pk}"

    @property
    def number_text(self) -> str:
        """`2026-00017`; empty until it is issued."""
        return "" if self.number is None else f"{self.series}-{self.number:05d}"

    @property
    def exact_nanos(self) -> int:
        return self.net_nanos + self.carried_in_nanos

    @property
    def carried_out_nanos(self) -> int:
        """What the next invoice begins with: below half a cent, or all of a sum below zero."""
        return self.exact_nanos - self.total_nanos


class LineKind(models.TextChoices):
    USAGE = "usage"  # tokens of one class, at one price version
    REQUESTS = "requests"  # the price per request
    ROUNDING = "rounding"  # charges are rounded line by line: what that comes to
    SHORTFALL = "shortfall"  # what the wallet could not carry; the operator bears it
    UNCHARGED = "uncharged"  # requests that cost nothing: refused, failed, without output
    FEE = "fee"
    CREDIT = "credit"  # promotional credit that paid for usage
    CORRECTION = "correction"
    REMAINDER = "remainder"  # of the invoice before


class PlanFee(models.Model):
    """A plan's fee for a month. Due at the month's close, charged when the wallet carries it."""

    tenant = models.ForeignKey("keys.Tenant", on_delete=models.PROTECT, related_name="+")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="+")
    terms = models.ForeignKey(PlanTerms, on_delete=models.PROTECT, related_name="+")
    month = models.DateField()
    currency = models.CharField(max_length=3)
    amount_nanos = models.BigIntegerField()
    link = models.UUIDField(unique=True)
    created_at = models.DateTimeField(default=timezone.now)
    charged_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "plan", "month"], name="plan_fee_once"),
            models.CheckConstraint(
                condition=models.Q(amount_nanos__gt=0), name="plan_fee_above_zero"
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant"],
                condition=models.Q(charged_at__isnull=True),
                name="plan_fee_waiting",
            )
        ]

    def __str__(self) -> str:
        return f"fee_{self.pk}"


class InvoiceLine(models.Model):
    """One line. Lines of one `part` have the same exchanges behind them: a model at one price.

    `unit_nanos` is per million tokens, or for each of `quantity` otherwise. `words` are frozen
    with the document.
    """

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="lines")
    position = models.PositiveIntegerField()
    kind = models.CharField(max_length=10, choices=LineKind)
    words = models.CharField(max_length=500)
    part = models.PositiveIntegerField(null=True)
    model = models.CharField(max_length=256, blank=True)
    dimension = models.CharField(max_length=16, blank=True)
    price = models.ForeignKey(Price, null=True, on_delete=models.PROTECT, related_name="+")
    terms = models.ForeignKey(PlanTerms, null=True, on_delete=models.PROTECT, related_name="+")
    above_prompt_tokens = models.BigIntegerField(null=True)
    quantity = models.BigIntegerField(null=True)
    unit_nanos = models.BigIntegerField(null=True)
    amount_nanos = models.BigIntegerField()
    exchange_count = models.BigIntegerField(default=0)
    fee = models.ForeignKey(PlanFee, null=True, on_delete=models.PROTECT, related_name="lines")
    credit = models.ForeignKey(Credit, null=True, on_delete=models.PROTECT, related_name="+")
    adjustment = models.ForeignKey(
        Adjustment, null=True, on_delete=models.PROTECT, related_name="lines"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["invoice", "position"], name="invoice_line_once")
        ]

    def __str__(self) -> str:
        return f"{self.invoice_id}/{self.position}"


class InvoiceExchange(models.Model):
    """That an exchange is on an invoice, and in which part of it.

    On one that is not void at most once, by a unique index. When an invoice is voided its rows are
    released: the next draft takes their exchanges, and the void one still shows what it listed.
    """

    exchange_id = models.UUIDField(primary_key=True)
    tenant_id = models.BigIntegerField()
    invoice_id = models.BigIntegerField()
    part = models.IntegerField()
    is_released = models.BooleanField(default=False)

    class Meta:
        managed = False
        db_table = "billing_invoiceexchange"

    def __str__(self) -> str:
        return f"{self.exchange_id} on {self.invoice_id}"


class CloseRun(models.Model):
    """One run over the tenants of a month: how far it came, and what it drafted."""

    month = models.DateField()
    actor = models.CharField(max_length=254)
    started_at = models.DateTimeField(default=timezone.now)
    progress_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    tenant_count = models.PositiveIntegerField(default=0)
    done_count = models.PositiveIntegerField(default=0)
    drafted_count = models.PositiveIntegerField(default=0)
    failed_count = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}: {self.done_count} of {self.tenant_count}"
