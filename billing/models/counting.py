"""Our counts beside what vendors reported, and what staff accepted to learn from it."""

from django.db import models
from django.utils import timezone


class CorrectionState(models.TextChoices):
    PROPOSED = "proposed"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    SUPERSEDED = "superseded"  # a later night proposed something else


class CountCorrection(models.Model):
    """One version of what is added to our counts for one vendor's model.

    A corrected count is `tokens × …_per_mille / 1000 + …_offset`. In force from `decided_at` on,
    for exchanges that arrive later, until the next accepted version; and only for counts of its
    `family` and `rule_version`. `…_error` is the median error that it leaves on its sample, None
    where that side has none. What is decided never changes: a trigger refuses it.
    """

    vendor = models.CharField(max_length=64)
    vendor_model = models.CharField(max_length=256)
    version = models.PositiveIntegerField()
    family = models.CharField(max_length=64)
    rule_version = models.CharField(max_length=32)
    prompt_per_mille = models.IntegerField(default=1_000)
    prompt_offset = models.IntegerField(default=0)
    prompt_error = models.DecimalField(max_digits=12, decimal_places=4, null=True)
    completion_per_mille = models.IntegerField(default=1_000)
    completion_offset = models.IntegerField(default=0)
    completion_error = models.DecimalField(max_digits=12, decimal_places=4, null=True)
    sample_size = models.PositiveIntegerField(default=0)
    state = models.CharField(
        max_length=10, choices=CorrectionState, default=CorrectionState.PROPOSED
    )
    proposed_at = models.DateTimeField(default=timezone.now)
    decided_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["vendor", "vendor_model", "version"], name="correction_version_once"
            ),
            models.UniqueConstraint(
                fields=["vendor", "vendor_model"],
                condition=models.Q(state=CorrectionState.PROPOSED),
                name="one_open_correction",
            ),
            models.CheckConstraint(
                condition=models.Q(state=CorrectionState.PROPOSED, decided_at__isnull=True)
                | (~models.Q(state=CorrectionState.PROPOSED) & models.Q(decided_at__isnull=False)),
                name="correction_decided_at",
            ),
            models.CheckConstraint(
                condition=models.Q(prompt_per_mille__gt=0, completion_per_mille__gt=0),
                name="correction_above_zero",
            ),
        ]

    @property
    def public_id(self) -> str:
        return f"corr_{self.pk}"

    def __str__(self) -> str:
        return f"correction {self.version} of {self.vendor} {self.vendor_model}"


class CountComparison(models.Model):
    """One night's sample of one vendor's model: its counts beside ours, with what was in force.

    `prompt` and `completion` are `{sample_size, median_error, p95_error, bias}` with fractions as
    texts (see `billing.estimation.learning.Spread`), None where there was nothing to compare.
    """

    vendor = models.CharField(max_length=64)
    vendor_model = models.CharField(max_length=256)
    day = models.DateField()  # UTC; the sample is of it and, where it had few, of the week before
    compared_at = models.DateTimeField(default=timezone.now)
    family = models.CharField(max_length=64)
    rule_version = models.CharField(max_length=32)
    correction = models.ForeignKey(
        CountCorrection, null=True, on_delete=models.PROTECT, related_name="+"
    )
    prompt = models.JSONField(null=True)
    completion = models.JSONField(null=True)
    is_drifting = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["vendor", "vendor_model", "day"], name="comparison_once_a_day"
            )
        ]
        indexes = [models.Index(fields=["-day"], name="comparison_by_day")]

    def __str__(self) -> str:
        return f"{self.vendor} {self.vendor_model} on {self.day}"
