import time
from datetime import timedelta

import psycopg
import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from gateway.runtime.process import database_url
from keys.models import ApiKey, Tenant
from keys.principals import CHANNEL, PRINCIPAL_SQL, Principal, principal_from_row
from keys.services import revoke_key


def load(public_id: str) -> Principal | None:
    with connection.cursor() as cursor:
        cursor.execute(PRINCIPAL_SQL, [public_id])
        row = cursor.fetchone()
    return None if row is None else principal_from_row(row)


def test_a_principal_is_all_that_the_relay_needs_of_a_key(world) -> None:
    tenant = world.tenant()
    created = world.key(tenant, allowed_models=["m"], requests_per_minute=60, concurrent_requests=2)

    found = load(created.key.public_id)

    assert found.proves(created.secret)
    assert (found.key_id, found.tenant_id) == (created.key.pk, tenant.pk)
    assert (found.currency, found.transcript_policy) == ("USD", "content")
    assert (found.requests_per_minute, found.concurrent_requests) == (60, 2)
    assert found.tenant_is_active
    assert not found.is_test
    assert bytes(created.key.secret_hash).hex() not in repr(found)
    assert str(found.secret_hash) not in repr(found)


def test_another_keys_secret_proves_nothing(world) -> None:
    one, other = world.key(world.tenant()), world.key(world.tenant())
    assert not load(one.key.public_id).proves(other.secret)
    assert load("0000000000") is None


def test_an_expiry_is_looked_at_on_use(world) -> None:
    """A principal that was read long before expires on time all the same."""
    expires_at = timezone.now() + timedelta(seconds=100)
    created = world.key(world.tenant(), expires_at=expires_at)
    found = load(created.key.public_id)
    with time_machine.travel(expires_at - timedelta(milliseconds=1), tick=False):
        assert found.proves(created.secret)
    with time_machine.travel(expires_at, tick=False):
        assert not found.proves(created.secret)
        assert not found.is_current


@pytest.mark.parametrize("field", ["revoked_at", "paused_at"])
def test_a_revoked_or_paused_key_proves_nothing(world, field: str) -> None:
    created = world.key(world.tenant())
    ApiKey.objects.filter(pk=created.key.pk).update(**{field: timezone.now()})
    assert not load(created.key.public_id).proves(created.secret)


def test_a_suspended_tenants_keys_say_so(world) -> None:
    created = world.key(world.tenant())
    Tenant.objects.filter(pk=created.key.tenant_id).update(state="suspended")
    found = load(created.key.public_id)
    assert found.proves(created.secret)
    assert not found.tenant_is_active


def test_models_are_all_or_those_that_are_named(world) -> None:
    anything = load(world.key(world.tenant()).key.public_id)
    named = load(world.key(world.tenant(), allowed_models=["m1"]).key.public_id)
    assert anything.may_use_model("whatever")
    assert named.may_use_model("m1")
    assert not named.may_use_model("m1 ")
    assert not named.may_use_model("M1")


@pytest.mark.parametrize(
    ("ranges", "address", "may"),
    [
        (None, "203.0.113.9", True),
        (None, "no address at all", True),
        (["10.0.0.5"], "10.0.0.5", True),
        (["10.0.0.5"], "10.0.0.6", False),
        (["10.0.0.0/8"], "10.255.255.255", True),
        (["10.0.0.5/8"], "10.1.2.3", True),  # host bits do not matter
        (["10.0.0.0/8"], "11.0.0.0", False),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", True),
        (["10.0.0.0/8"], "::10.1.2.3", False),
        (["::ffff:10.0.0.0/104"], "10.1.2.3", True),
        (["::ffff:10.0.0.5"], "::ffff:10.0.0.5", True),
        (["::ffff:10.0.0.5"], "10.0.0.6", False),
        (["2001:db8::/32"], "2001:db8:1::1", True),
        (["2001:db8::/32"], "2001:DB8:0:0:1::1", True),
        (["2001:db8::/32"], "2001:db9::1", False),
        (["2001:db8::1"], "10.0.0.5", False),
        (["::/0"], "10.0.0.5", False),  # all of IPv6 is nothing of IPv4
        (["0.0.0.0/0", "::/0"], "2001:db8::1", True),
        (["192.0.2.1", "10.0.0.0/8"], "10.9.9.9", True),
        (["10.0.0.5"], "", False),
        (["10.0.0.5"], "10.0.0.5, 1.2.3.4", False),
        (["10.0.0.5"], "10.0.0.05", False),
        (["10.0.0.5"], "unix:", False),
    ],
)
def test_a_key_may_come_from_its_ranges_only(world, ranges, address: str, may: bool) -> None:
    created = world.key(world.tenant(balance="0"), allowed_ips=ranges)
    assert load(created.key.public_id).may_come_from(address) is may


@pytest.mark.parametrize(
    "change",
    [
        lambda key: revoke_key(key.tenant, key.public_id, actor="tests"),
        lambda key: ApiKey.objects.filter(pk=key.pk).update(allowed_models=["m"]),
        lambda key: key.delete(),
    ],
)
def test_every_change_of_a_key_is_told_with_its_commit(committed, world, change) -> None:
    key = world.key(world.tenant()).key
    public_id = key.public_id
    with psycopg.connect(database_url(), autocommit=True) as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        change(key)
        told = [notify.payload for notify in listener.notifies(timeout=5, stop_after=1)]
    assert told == [public_id]


def test_a_change_of_a_tenant_is_told_and_a_use_of_a_key_is_not(committed, world) -> None:
    from keys.models import KeyUse

    key = world.key(world.tenant()).key
    with psycopg.connect(database_url(), autocommit=True) as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        KeyUse.objects.create(key=key, last_used_at=timezone.now())
        Tenant.objects.filter(pk=key.tenant_id).update(state="suspended")
        told = [notify.payload for notify in listener.notifies(timeout=5, stop_after=1)]
    assert told == [f"tenant:{key.tenant_id}"]


def test_the_clock_is_the_machines(world) -> None:
    created = world.key(world.tenant(), expires_at=timezone.now() + timedelta(days=1))
    assert load(created.key.public_id).expires_at_s == pytest.approx(time.time() + 86_400, abs=60)
