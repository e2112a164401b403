"""Acts on tenants and keys. Each writes its trail in the transaction of the act."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from keys import secrets
from keys.errors import BadKeyRequest, KeyNotFound
from keys.models import ApiKey, AuditAction, AuditEvent, KeyKind, Member, Role, Tenant, User
from keys.networks import network_of
from keys.time_zones import check_time_zone

NAME_LENGTH_MAX = 80
LIMIT_MAX = 1_000_000
REASON_LENGTH_MAX = 500


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What a key may do. None is "no limit of its own"; an empty list is refused."""

    allowed_models: Sequence[str] | None = None
    allowed_ips: Sequence[str] | None = None
    requests_per_minute: int | None = None
    concurrent_requests: int | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CreatedKey:
    key: ApiKey
    secret: str = field(repr=False)


def create_tenant(
    name: str, slug: str, *, actor: str, currency: str = "USD", time_zone: str = "UTC"
) -> Tenant:
    """Raises ValidationError for an unknown time zone."""
    check_time_zone(time_zone)
    with transaction.atomic():
        tenant = Tenant.objects.create(name=name, slug=slug, currency=currency, time_zone=time_zone)
        record(AuditAction.TENANT_CREATED, tenant_id=tenant.pk, actor=actor, subject=slug)
    return tenant


def set_time_zone(tenant: Tenant, time_zone: str, *, actor: str, reason: str = "") -> None:
    """Limits count in the new days from the next sweep of money on. Raises ValidationError."""
    check_time_zone(time_zone)
    with transaction.atomic():
        before = Tenant.objects.select_for_update().get(pk=tenant.pk).time_zone
        if before == time_zone:
            return
        tenant.time_zone = time_zone
        tenant.save(update_fields=["time_zone"])
        record(
            AuditAction.TENANT_TIME_ZONE_SET,
            tenant_id=tenant.pk,
            actor=actor,
            subject=tenant.slug,
            reason=reason[:REASON_LENGTH_MAX],
            detail={"from": before, "to": time_zone},
        )


def add_member(tenant: Tenant, user: User, role: Role) -> Member:
    member, _ = Member.objects.update_or_create(tenant=tenant, user=user, defaults={"role": role})
    return member


def create_key(
    tenant: Tenant,
    name: str,
    *,
    actor: str,
    kind: KeyKind = KeyKind.LIVE,
    limits: KeyLimits | None = None,
    created_by: User | None = None,
) -> CreatedKey:
    """The only moment at which the secret exists in clear. Raises BadKeyRequest."""
    limits = limits or KeyLimits()
    name = _clean_name(name)
    _check_limits(limits)
    secret = secrets.make(kind)
    with transaction.atomic():
        key = ApiKey.objects.create(
            tenant=tenant,
            kind=kind,
            name=name,
            public_id=secret.public_id,
            secret_hash=secret.fingerprint,
            last_four=secret.last_four,
            allowed_models=_list(limits.allowed_models),
            allowed_ips=_list(limits.allowed_ips),
            requests_per_minute=limits.requests_per_minute,
            concurrent_requests=limits.concurrent_requests,
            expires_at=limits.expires_at,
            created_by=created_by,
        )
        record(
            AuditAction.KEY_CREATED,
            tenant_id=tenant.pk,
            actor=actor,
            subject=secret.public_id,
            detail={"name": name, "kind": str(kind)},
        )
    return CreatedKey(key, secret.text)


def revoke_key(tenant: Tenant, public_id: str, *, actor: str, reason: str = "") -> ApiKey:
    """Revoking twice is revoking once. Raises KeyNotFound for another tenant's key too."""
    with transaction.atomic():
        key = ApiKey.objects.select_for_update().filter(tenant=tenant, public_id=public_id).first()
        if key is None:
            raise KeyNotFound("There is no such key.")
        if key.revoked_at is None:
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])
            record(
                AuditAction.KEY_REVOKED,
                tenant_id=tenant.pk,
                actor=actor,
                subject=public_id,
                reason=reason[:REASON_LENGTH_MAX],
                detail={"name": key.name},
            )
    return key


def record(
    action: AuditAction,
    *,
    tenant_id: int | None,
    actor: str,
    subject: str,
    reason: str = "",
    detail: dict[str, Any] | None = None,
) -> None:
    AuditEvent.objects.create(
        action=action,
        tenant_id=tenant_id,
        actor=actor,
        subject=subject,
        reason=reason,
        detail=detail or {},
    )


def _list(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def _clean_name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise BadKeyRequest("name", f"Enter a name of 1 to {NAME_LENGTH_MAX} characters.")
    return name


def _check_limits(limits: KeyLimits) -> None:
    if limits.allowed_models is not None and not limits.allowed_models:
        raise BadKeyRequest("allowed_models", "Name at least one model, or none for all of them.")
    if limits.allowed_ips is not None and not limits.allowed_ips:
        raise BadKeyRequest("allowed_ips", "Enter at least one range, or none for any address.")
    for text in limits.allowed_ips or ():
        try:
            network_of(text)
        except ValueError:
            raise BadKeyRequest("allowed_ips", f"{text!r} is no IP address or range.") from None
    for name in ("requests_per_minute", "concurrent_requests"):
        number = getattr(limits, name)
        if number is not None and number < 1:
            raise BadKeyRequest(name, "Enter 1 or more. Leave it empty for no limit.")
        if number is not None and number > LIMIT_MAX:
            raise BadKeyRequest(name, f"Enter {LIMIT_MAX} at most. Leave it empty for no limit.")
    if limits.expires_at is not None and limits.expires_at <= timezone.now():
        raise BadKeyRequest("expires_at", "Enter a time in the future.")
