from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from keys import secrets
from keys.errors import BadKeyRequest, KeyNotFound
from keys.models import ApiKey, AuditEvent, KeyKind, Member, Role, Tenant
from keys.services import KeyLimits, add_member, create_key, create_tenant, revoke_key

ALICE = "alice@example.test"


@pytest.fixture
def acme(world) -> Tenant:
    return world.tenant("Acme", balance="0")


def trail(subject: str) -> list[tuple[str, str, str]]:
    events = AuditEvent.objects.filter(subject=subject).order_by("pk")
    return [(event.action, event.actor, event.reason) for event in events]


def test_a_new_key_is_shown_once_and_leaves_its_mark(acme: Tenant) -> None:
    created = create_key(acme, "  notebooks \t of  Alice ", actor=ALICE, kind=KeyKind.TEST)

    key = ApiKey.objects.get(pk=created.key.pk)
    assert created.secret.startswith(f"sk_test_{key.public_id}_")
    assert (key.name, key.kind, key.tenant) == ("notebooks of Alice", "test", acme)
    assert secrets.matches(created.secret, bytes(key.secret_hash))
    assert key.last_four == created.secret[-4:]
    assert trail(key.public_id) == [("key:created", ALICE, "")]
    (event,) = AuditEvent.objects.filter(subject=key.public_id)
    assert (event.tenant_id, event.detail) == (
        acme.pk,
        {"name": "notebooks of Alice", "kind": "test"},
    )


def test_the_secret_is_in_no_row_and_no_representation(acme: Tenant) -> None:
    created = create_key(acme, "notebooks", actor=ALICE)
    secret_part = created.secret.rpartition("_")[2]

    assert secret_part not in repr(created)
    for table in ("keys_apikey", "keys_auditevent", "keys_keyuse"):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT t::text FROM {table} t")
            for (row,) in cursor.fetchall():
                assert secret_part not in row
                assert secret_part[:-6] not in row
                assert secret_part.encode().hex() not in row


def test_limits_are_kept_as_they_are_said(acme: Tenant) -> None:
    expires_at = timezone.now() + timedelta(days=1)
    limits = KeyLimits(
        allowed_models=["m1", "m2"],
        allowed_ips=["10.0.0.0/8", "2001:db8::/32"],
        requests_per_minute=60,
        concurrent_requests=5,
        expires_at=expires_at,
    )

    key = create_key(acme, "notebooks", actor=ALICE, limits=limits).key

    key.refresh_from_db()
    assert (key.allowed_models, key.allowed_ips) == (
        ["m1", "m2"],
        ["10.0.0.0/8", "2001:db8::/32"],
    )
    assert (key.requests_per_minute, key.concurrent_requests) == (60, 5)
    assert key.expires_at == expires_at


def test_without_limits_there_are_none(acme: Tenant) -> None:
    key = create_key(acme, "notebooks", actor=ALICE).key
    key.refresh_from_db()
    assert key.allowed_models is None
    assert key.allowed_ips is None
    assert key.requests_per_minute is None
    assert key.concurrent_requests is None
    assert key.expires_at is None


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (KeyLimits(allowed_ips=["nonsense"]), "allowed_ips"),
        (KeyLimits(allowed_ips=["10.0.0.0/33"]), "allowed_ips"),
        (KeyLimits(allowed_ips=["10.0.0.1", ""]), "allowed_ips"),
        (KeyLimits(allowed_ips=[]), "allowed_ips"),
        (KeyLimits(allowed_models=[]), "allowed_models"),
        (KeyLimits(requests_per_minute=0), "requests_per_minute"),
        (KeyLimits(requests_per_minute=-1), "requests_per_minute"),
        (KeyLimits(requests_per_minute=2**31), "requests_per_minute"),
        (KeyLimits(concurrent_requests=0), "concurrent_requests"),
        (KeyLimits(concurrent_requests=10**9), "concurrent_requests"),
        (KeyLimits(expires_at=timezone.now()), "expires_at"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_and_nothing_is_made(
    acme: Tenant, limits: KeyLimits, field: str
) -> None:
    with pytest.raises(BadKeyRequest) as refusal:
        create_key(acme, "notebooks", actor=ALICE, limits=limits)
    assert refusal.value.field == field
    assert not ApiKey.objects.filter(tenant=acme).exists()
    assert not AuditEvent.objects.filter(tenant_id=acme.pk, action="key:created").exists()


@pytest.mark.parametrize("name", ["", " ", "\t", "x" * 81, "a\x00b", "a\u202eb"])
def test_a_name_that_cannot_be_is_refused(acme: Tenant, name: str) -> None:
    with pytest.raises(BadKeyRequest) as refusal:
        create_key(acme, name, actor=ALICE)
    assert refusal.value.field == "name"
    assert not ApiKey.objects.filter(tenant=acme).exists()


def test_revoking_twice_is_revoking_once(acme: Tenant) -> None:
    key = create_key(acme, "notebooks", actor=ALICE).key

    first = revoke_key(acme, key.public_id, actor=ALICE, reason="leaked")
    second = revoke_key(acme, key.public_id, actor="bob@example.test", reason="again")

    assert first.revoked_at == second.revoked_at
    assert first.state == second.state == "revoked"
    assert trail(key.public_id) == [("key:created", ALICE, ""), ("key:revoked", ALICE, "leaked")]


def test_a_long_reason_does_not_keep_a_key_alive(acme: Tenant) -> None:
    key = create_key(acme, "notebooks", actor=ALICE).key
    assert revoke_key(acme, key.public_id, actor=ALICE, reason="x" * 5_000).state == "revoked"
    assert trail(key.public_id)[1] == ("key:revoked", ALICE, "x" * 500)


def test_another_tenants_key_is_no_key(acme: Tenant, world) -> None:
    charlies = create_key(world.tenant("Charlie", balance="0"), "his", actor="charlie").key

    for public_id in (charlies.public_id, "0000000000", ""):
        with pytest.raises(KeyNotFound):
            revoke_key(acme, public_id, actor=ALICE)

    charlies.refresh_from_db()
    assert charlies.revoked_at is None
    assert not AuditEvent.objects.filter(action="key:revoked", tenant_id=acme.pk).exists()


def test_a_tenant_is_made_with_its_mark(db) -> None:
    tenant = create_tenant("Acme", "acme-of-tests", actor="dora@example.test", currency="EUR")
    assert (tenant.name, tenant.currency, tenant.state) == ("Acme", "EUR", "active")
    assert trail("acme-of-tests") == [("tenant:created", "dora@example.test", "")]


def test_a_member_has_one_role_the_last_given(acme: Tenant, world) -> None:
    bob = world.person("bob")
    add_member(acme, bob, Role.VIEWER)
    member = add_member(acme, bob, Role.ADMIN)
    assert Member.objects.get(tenant=acme, user=bob) == member
    assert member.role == "admin"
