from datetime import timedelta

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from keys.models import ApiKey, AuditAction, AuditEvent, KeyUse, Member, User
from keys.services import record


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "active"),
        ({"paused_at": timezone.now()}, "paused"),
        ({"expires_at": timezone.now()}, "expired"),
        ({"expires_at": timezone.now() + timedelta(hours=1)}, "active"),
        ({"expires_at": timezone.now(), "paused_at": timezone.now()}, "expired"),
        ({"revoked_at": timezone.now(), "expires_at": timezone.now()}, "revoked"),
    ],
)
def test_a_key_has_one_state_the_gravest(fields, state: str) -> None:
    assert ApiKey(**fields).state == state


def test_a_key_is_shown_masked(world) -> None:
    created = world.key(world.tenant())
    public_id, last_four = created.key.public_id, created.secret[-4:]
    assert str(created.key) == f"sk_live_{public_id}_••••{last_four}"
    assert created.secret not in repr(created.key)


def test_an_address_is_one_person_whatever_its_case(db) -> None:
    user = User.objects.create_user("Alice@Example.test", "alice-password")
    assert user.email == "alice@example.test"
    assert User.objects.get_by_natural_key("ALICE@example.TEST") == user
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.create(email="aLICE@example.test")


def test_a_password_is_kept_as_its_hash(db) -> None:
    user = User.objects.create_user("alice@example.test", "alice-password")
    assert user.password.startswith("argon2$")
    assert not User.objects.create_user("bob@example.test").has_usable_password()


def test_a_person_is_a_member_once(world) -> None:
    tenant = world.tenant()
    alice = world.person("alice", tenant)
    with pytest.raises(IntegrityError), transaction.atomic():
        Member.objects.create(tenant=tenant, user=alice, role="viewer")


def test_a_public_id_names_one_key(world) -> None:
    one, other = world.key(world.tenant()).key, world.key(world.tenant()).key
    with pytest.raises(IntegrityError), transaction.atomic():
        ApiKey.objects.filter(pk=one.pk).update(public_id=other.public_id)


def test_when_a_key_was_used_stands_apart_from_it(world) -> None:
    key = world.key(world.tenant()).key
    KeyUse.objects.create(key=key, last_used_at=timezone.now())
    assert "last_used_at" not in {field.name for field in ApiKey._meta.get_fields()}
    assert key.use.last_used_at


@pytest.fixture
def event(world) -> AuditEvent:
    record(AuditAction.KEY_CREATED, tenant_id=1, actor="alice@example.test", subject="x")
    return AuditEvent.objects.latest("pk")


@pytest.mark.parametrize(
    "act",
    [
        lambda event: AuditEvent.objects.filter(pk=event.pk).update(actor="somebody else"),
        lambda event: AuditEvent.objects.filter(pk=event.pk).delete(),
        lambda event: event.delete(),
        lambda event: event.save(),
    ],
)
def test_the_trail_is_append_only_whoever_asks(event: AuditEvent, act) -> None:
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        act(event)
    assert AuditEvent.objects.get(pk=event.pk).actor == "alice@example.test"


@pytest.mark.parametrize(
    "statement", ["UPDATE keys_auditevent SET reason = 'x'", "DELETE FROM keys_auditevent"]
)
def test_plain_sql_cannot_change_the_trail_either(event: AuditEvent, statement: str) -> None:
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)


def test_the_trail_cannot_be_emptied_at_once(event: AuditEvent) -> None:
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("TRUNCATE keys_auditevent")
    assert AuditEvent.objects.filter(pk=event.pk).exists()


@pytest.mark.parametrize("action", AuditAction.values)
def test_every_act_is_a_subject_and_what_was_done_to_it(action: str) -> None:
    subject, done = action.split(":")
    assert subject
    assert done
    assert len(action) <= AuditEvent._meta.get_field("action").max_length
