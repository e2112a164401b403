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


class Vendor(models.Model):
    name = models.CharField(max_length=64, unique=True)
    base_url = models.CharField(max_length=500)
    credential = EncryptedTextField(default="")
    is_active = models.BooleanField(default=True)
    connect_timeout_ms = models.PositiveIntegerField(default=5_000)
    first_byte_timeout_ms = models.PositiveIntegerField(default=120_000)
    idle_timeout_ms = models.PositiveIntegerField(default=60_000)
    total_timeout_ms = models.PositiveIntegerField(default=600_000)
    max_connections = models.PositiveIntegerField(default=1_000)
    client_gone = models.CharField(max_length=8, choices=ClientGone, default=ClientGone.CANCEL)
    cached_tokens = models.CharField(max_length=8, choices=CachedTokens, default=CachedTokens.AUTO)
    accepts_stream_options = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


class Model(models.Model):
    """A public name that clients ask for."""

    name = models.CharField(max_length=256, unique=True)
    is_active = models.BooleanField(default=True)
    family = models.CharField(max_length=64, null=True)
    context_tokens = models.PositiveIntegerField(default=131_072)
    max_output_tokens = models.PositiveIntegerField(default=16_384)
    default_output_tokens = models.PositiveIntegerField(default=4_096)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


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
