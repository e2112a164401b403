"""What things cost: plans and their terms, prices and their versions."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from billing.ids import public_price_id
from billing.money import BASIS_POINTS


class Plan(models.Model):
    """A name that tenants are on. What it means from when on stands in its terms."""

    name = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


class PlanTerms(models.Model):
    """One version of what a plan costs and gives, in one currency. Immutable.

    `price_factor_bps` multiplies list prices, in basis points: 9_000 is a discount of 10 %.
    `allowed_models` None is all of them; None for the two limits is none. `spend_limits` are the
    limits that a tenant gets when it comes on the plan, as `{period: {amount_nanos, action}}`.
    """

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="terms")
    currency = models.CharField(max_length=3)
    effective_from = models.DateTimeField()
    monthly_fee_nanos = models.BigIntegerField(default=0)
    included_credit_nanos = models.BigIntegerField(default=0)
    price_factor_bps = models.IntegerField(default=BASIS_POINTS)
    allowed_models = ArrayField(models.CharField(max_length=256), null=True)
    requests_per_minute = models.PositiveIntegerField(null=True)
    concurrent_requests = models.PositiveIntegerField(null=True)
    spend_limits = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "plan terms"
        constraints = [
            models.UniqueConstraint(
                fields=["plan", "currency", "effective_from"], name="plan_terms_once"
            ),
            models.CheckConstraint(
                condition=models.Q(
                    monthly_fee_nanos__gte=0, included_credit_nanos__gte=0, price_factor_bps__gte=0
                ),
                name="plan_terms_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.plan_id} in {self.currency} from {self.effective_from:%Y-%m-%d}"


class TenantPlan(models.Model):
    """The plan that a tenant is on from a moment on; None is "on no plan". Immutable."""

    tenant = models.ForeignKey("keys.Tenant", on_delete=models.PROTECT, related_name="+")
    plan = models.ForeignKey(Plan, null=True, on_delete=models.PROTECT, related_name="+")
    starts_at = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "starts_at"], name="tenant_plan_once")
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} on {self.plan_id} from {self.starts_at:%Y-%m-%d}"


class Price(models.Model):
    """One version of what a model costs, in nanos per million tokens. Immutable.

    A None is "no price of its own": the other classes of a prompt fall back to input, reasoning
    and audio output to output. A version without input or output is no price: from then on the
    model is refused. Free is an explicit 0.

    Without a `plan` it is the list price, to which a plan's factor applies. A plan's own price is
    final, and wins for tenants of that plan.

    `tiers` ascend by `above_prompt_tokens`; each names the `…_nanos` that it changes for a whole
    request whose prompt is longer.
    """

    model = models.CharField(max_length=256)
    plan = models.ForeignKey(Plan, null=True, on_delete=models.PROTECT, related_name="+")
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
                fields=["model", "plan", "currency", "effective_from"],
                name="price_version_once",
                nulls_distinct=False,
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
        return public_price_id(self.pk)
