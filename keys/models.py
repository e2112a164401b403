"""Who may do what: tenants, members, API keys, and the trail of what was done."""

from typing import ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from keys.time_zones import check_time_zone


class UserManager(BaseUserManager["User"]):
    def create_user(
        self, email: str, password: str | None = None, *, is_staff: bool = False
    ) -> "User":
        user = self.model(email=self.normalize_email(email).lower(), is_staff=is_staff)
        user.set_password(password)
        user.save()
        return user

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email__iexact=username)


class User(AbstractBaseUser):
    """A person. What they may do in a tenant stands in `Member`; `is_staff` is the operator's."""

    email = models.EmailField(unique=True)
    is_staff = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)
    date_joined = models.DateTimeField(default=timezone.now)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"

    class Meta:
        constraints = [models.UniqueConstraint(Lower("email"), name="user_email_once")]

    def __str__(self) -> str:
        return self.email


class TenantState(models.TextChoices):
    ACTIVE = "active"
    SUSPENDED = "suspended"


class TranscriptPolicy(models.TextChoices):
    CONTENT = "content"
    SUMMARIES = "summaries"
    NOTHING = "nothing"


class Tenant(models.Model):
    name = models.CharField(max_length=100)
    slug = models.SlugField(unique=True)
    state = models.CharField(max_length=16, choices=TenantState, default=TenantState.ACTIVE)
    currency = models.CharField(max_length=3, default="USD")
    time_zone = models.CharField(max_length=64, default="UTC", validators=[check_time_zone])
    transcript_policy = models.CharField(
        max_length=16, choices=TranscriptPolicy, default=TranscriptPolicy.CONTENT
    )
    transcript_days = models.PositiveSmallIntegerField(default=30)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    BILLING = "billing"
    VIEWER = "viewer"


MAY_SET_TRANSCRIPTS = frozenset({Role.OWNER, Role.ADMIN})
MAY_MANAGE_KEYS = frozenset({Role.OWNER, Role.ADMIN, Role.DEVELOPER})
MAY_SEE_INVOICES = frozenset({Role.OWNER, Role.ADMIN, Role.BILLING})


class Member(models.Model):
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "user"], name="member_once")]

    def __str__(self) -> str:
        return f"{self.user_id} in {self.tenant_id} as {self.role}"


class KeyKind(models.TextChoices):
    LIVE = "live"
    TEST = "test"
    SYSTEM = "sys"


class ApiKey(models.Model):
    """A key of a tenant. The secret itself is nowhere: `secret_hash` is keyed by the pepper."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_keys")
    kind = models.CharField(max_length=4, choices=KeyKind)
    name = models.CharField(max_length=80)
    public_id = models.CharField(max_length=16, unique=True)
    secret_hash = models.BinaryField(max_length=32)
    last_four = models.CharField(max_length=4)
    allowed_models = ArrayField(models.CharField(max_length=256), null=True, blank=True)
    allowed_ips = ArrayField(models.CharField(max_length=64), null=True, blank=True)
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    concurrent_requests = models.PositiveIntegerField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    paused_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["tenant", "-created_at"], name="key_by_tenant")]

    def __str__(self) -> str:
        return self.masked

    @property
    def masked(self) -> str:
        return f"sk_{self.kind}_{self.public_id}_••••{self.last_four}"

    @property
    def state(self) -> str:
        """`revoked | expired | paused | active`: the first that applies."""
        if self.revoked_at:
            return "revoked"
        if self.expires_at and self.expires_at <= timezone.now():
            return "expired"
        return "paused" if self.paused_at else "active"


class KeyUse(models.Model):
    """When a key was last used: apart from the key, so that traffic never rewrites key rows."""

    key = models.OneToOneField(
        ApiKey, primary_key=True, on_delete=models.CASCADE, related_name="use"
    )
    last_used_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.key_id} at {self.last_used_at}"


class AuditAction(models.TextChoices):
    """`subject:action`, in one place, so that every trail can be listed and none is misspelt."""

    KEY_CREATED = "key:created"
    KEY_REVOKED = "key:revoked"
    TENANT_CREATED = "tenant:created"
    TENANT_SUSPENDED = "tenant:suspended"
    TENANT_TIME_ZONE_SET = "tenant:time-zone-set"
    TENANT_TRANSCRIPTS_SET = "tenant:transcripts-set"
    USER_CREATED = "user:created"
    USER_MADE_STAFF = "user:made-staff"
    MEMBER_ADDED = "member:added"
    KEY_PAUSED = "key:paused"
    WALLET_TOPPED_UP = "wallet:topped-up"
    WALLET_CREDIT_LIMIT_SET = "wallet:credit-limit-set"
    WALLET_ADJUSTMENT_PROPOSED = "wallet:adjustment-proposed"
    WALLET_ADJUSTED = "wallet:adjusted"
    WALLET_ADJUSTMENT_DECLINED = "wallet:adjustment-declined"
    WALLET_REFUNDED = "wallet:refunded"
    CREDIT_GRANTED = "credit:granted"
    CODE_MADE = "code:made"
    CODE_REDEEMED = "code:redeemed"
    PLAN_ASSIGNED = "plan:assigned"
    FEE_CHARGED = "fee:charged"
    INVOICE_DRAFTED = "invoice:drafted"
    INVOICE_SUBMITTED = "invoice:submitted"
    INVOICE_RETURNED = "invoice:returned"
    INVOICE_ISSUED = "invoice:issued"
    INVOICE_PAID = "invoice:paid"
    INVOICE_VOIDED = "invoice:voided"
    LIMIT_SET = "limit:set"
    LIMIT_RAISED = "limit:raised"
    LIMIT_REMOVED = "limit:removed"
    GUARD_SET = "guard:set"
    CATALOG_APPLIED = "catalog:applied"
    VENDOR_QUALIFIED = "vendor:qualified"
    VENDOR_UNQUALIFIED = "vendor:unqualified"
    VENDOR_DISABLED = "vendor:disabled"
    VENDOR_ENABLED = "vendor:enabled"
    VENDOR_OVERRIDDEN = "vendor:overridden"
    VENDOR_OVERRIDE_WITHDRAWN = "vendor:override-withdrawn"
    VENDOR_CHECK_ASKED = "vendor:check-asked"
    CORRECTION_ACCEPTED = "correction:accepted"
    CORRECTION_DECLINED = "correction:declined"
    CORRECTION_WITHDRAWN = "correction:withdrawn"


class AuditEvent(models.Model):
    """What was done, by whom, to what, why. Append-only: a trigger refuses change and removal."""

    at = models.DateTimeField(default=timezone.now)
    tenant_id = models.BigIntegerField(null=True, db_index=True)
    actor = models.CharField(max_length=254)
    action = models.CharField(max_length=40, choices=AuditAction)
    subject = models.CharField(max_length=200)
    reason = models.CharField(max_length=500, blank=True)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.action} {self.subject}"
