"""The catalog's vendors, models and routes, and what was said on the wire."""

from django.db import models
from django.utils import timezone

from keys.encryption import EncryptedTextField

KEYLESS = "::keyless::"  # the credential of a vendor that wants none


class ClientGone(models.TextChoices):
    """What becomes of the vendor's answer when the client has left."""

    CANCEL = "cancel"
    DRAIN = "drain"


class CachedTokens(models.TextChoices):
    """Where a vendor counts tokens that came from its cache."""

    AUTO = "auto"  # by the arithmetic of its total
    INSIDE = "inside"
    BESIDE = "beside"


class Qualification(models.TextChoices):
    """Whether a vendor must pass its checks before it takes live traffic."""

    REQUIRED = "required"
    WAIVED = "waived"


WAIVED_BY_CATALOG = "applied by catalog file"


class Vendor(models.Model):
    """`qualified_base_url` is the address that passed: another address has passed nothing.

    The catalog owns what it names, `qualification` included; checks own `qualified_…`; people own
    `override_reason` and `disabled_…`, so that no check and no file undoes what they decided.
    """

    name = models.CharField(max_length=64, unique=True)
    base_url = models.CharField(max_length=500)
    credential = EncryptedTextField(default="")
    is_active = models.BooleanField(default=True)
    connect_timeout_ms = models.PositiveIntegerField(default=5_000)
    first_byte_timeout_ms = models.PositiveIntegerField(default=120_000)
    idle_timeout_ms = models.PositiveIntegerField(default=60_000)
    total_timeout_ms = models.PositiveIntegerField(default=600_000)
    max_connections = models.PositiveIntegerField(default=1_000)
    keep_alive_ms = models.PositiveIntegerField(default=4_000)
    breaker_failures = models.PositiveIntegerField(default=10)
    breaker_percent = models.PositiveSmallIntegerField(default=50)
    breaker_window_ms = models.PositiveIntegerField(default=30_000)
    breaker_pause_ms = models.PositiveIntegerField(default=10_000)
    client_gone = models.CharField(max_length=8, choices=ClientGone, default=ClientGone.CANCEL)
    cached_tokens = models.CharField(max_length=8, choices=CachedTokens, default=CachedTokens.AUTO)
    accepts_stream_options = models.BooleanField(default=True)
    qualification = models.CharField(
        max_length=8, choices=Qualification, default=Qualification.WAIVED
    )
    waiver_reason = models.CharField(max_length=500, default=WAIVED_BY_CATALOG)
    qualified_base_url = models.CharField(max_length=500, default="")
    qualified_at = models.DateTimeField(null=True)
    override_reason = models.CharField(max_length=500, default="")
    disabled_reason = models.CharField(max_length=500, default="")
    disabled_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


class VendorCheck(models.Model):
    """One qualification run of one vendor model. `report` is what docs/vendors.md describes.

    `passed` is None where the run could not decide: that is no failure. It speaks of `base_url`
    alone. `spent_tokens` is what the run cost at the vendor, estimated where it did not say.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="checks")
    vendor_model = models.CharField(max_length=256)
    base_url = models.CharField(max_length=500)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    passed = models.BooleanField(null=True)
    spent_tokens = models.PositiveIntegerField(default=0)
    report = models.JSONField()

    class Meta:
        indexes = [
            models.Index(fields=["vendor", "vendor_model", "-started_at"], name="check_by_model")
        ]
        ordering = ["-started_at", "-pk"]

    def __str__(self) -> str:
        verdict = {True: "passed", False: "failed", None: "undecided"}[self.passed]
        return f"{self.vendor_id} {self.vendor_model} {verdict}"


class CheckJob(models.Model):
    """A check that a person asked for: waiting, running or over. One at a time for each model.

    asked_at: somebody asked; started_at: a worker took it up; finished_at: its run was kept as a
    `VendorCheck`, or it ended by the `problem`.
    """

    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="check_jobs")
    vendor_model = models.CharField(max_length=256)
    asked_by = models.CharField(max_length=254)
    asked_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    problem = models.CharField(max_length=200, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["vendor", "vendor_model"],
                condition=models.Q(finished_at=None),
                name="check_job_open_once",
            )
        ]
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.vendor_id} {self.vendor_model}"


class Model(models.Model):
    """A public name that clients ask for."""

    name = models.CharField(max_length=256, unique=True)
    is_active = models.BooleanField(default=True)
    family = models.CharField(max_length=64, null=True)
    context_tokens = models.PositiveIntegerField(default=131_072)
    max_output_tokens = models.PositiveIntegerField(default=16_384)
    default_output_tokens = models.PositiveIntegerField(default=4_096)
    sticky_routes = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name

    def first_route(self) -> "Route | None":
        """The route that is tried first, of those that lead to an active vendor."""
        return self.routes.filter(vendor__is_active=True).order_by("priority", "pk").first()


class Route(models.Model):
    """A model at a vendor, under the vendor's own name for it. Lowest priority goes first."""

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="routes")
    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="routes")
    vendor_model = models.CharField(max_length=256)
    priority = models.PositiveSmallIntegerField(default=0)
    weight = models.PositiveSmallIntegerField(default=1)
    family = models.CharField(max_length=64, null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model", "vendor", "vendor_model"], name="route_once")
        ]
        ordering = ["priority", "pk"]

    def __str__(self) -> str:
        return f"{self.model_id} → {self.vendor_id} {self.vendor_model}"


class Transcript(models.Model):
    """What was said, masked. Two bodies stand for four legs.

    `client_request` and `vendor_answer` hold bodies as zstd frames; the vendor's request and the
    client's answer are what the relay's core makes of them (gateway.exchanges.legs). `legs` keeps
    methods, URLs, headers, sizes and time offsets in milliseconds; `client_answer` is kept only
    where it cannot be made again: an error of ours.
    """

    exchange_id = models.UUIDField(primary_key=True)
    tenant_id = models.BigIntegerField()
    legs = models.JSONField(default=dict)
    summary = models.JSONField(null=True)
    client_request = models.BinaryField(null=True)
    vendor_answer = models.BinaryField(null=True)
    client_answer = models.BinaryField(null=True)

    class Meta:
        managed = False
        db_table = "gateway_transcript"

    def __str__(self) -> str:
        return str(self.exchange_id)


class IdempotentRequest(models.Model):
    """A request that was sent with an Idempotency-Key, and the answer that a repeat gets.

    `finished_at` None: it is running. `answer` holds the client's bytes as zstd frames, `headers`
    what went out with them. Forgotten after a day.
    """

    pk = models.CompositePrimaryKey("tenant_id", "key")
    tenant_id = models.BigIntegerField()
    key = models.TextField()
    body_sha256 = models.BinaryField()
    exchange_id = models.UUIDField()
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    status_code = models.SmallIntegerField(null=True)
    headers = models.JSONField(null=True)
    answer = models.BinaryField(null=True)

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="idempotent_by_age")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.key}"
