from datetime import timedelta

import pytest
from django.utils import timezone

from keys.models import ApiKey, KeyUse
from keys.selectors import keys_of, memberships_of
from keys.services import revoke_key


def test_keys_are_a_tenants_own_newest_first(world) -> None:
    tenant, other = world.tenant(), world.tenant()
    first, second = (world.key(tenant, name).key for name in ("first", "second"))
    world.key(other)
    ApiKey.objects.filter(pk=first.pk).update(created_at=timezone.now() - timedelta(hours=1))
    assert list(keys_of(tenant, ["live"])) == [second, first]


@pytest.mark.parametrize("kind", ["live", "test"])
def test_live_and_test_never_mix(world, kind: str) -> None:
    tenant = world.tenant()
    made = {one: world.key(tenant, kind=one).key for one in ("live", "test")}
    assert list(keys_of(tenant, [kind])) == [made[kind]]


def test_revoked_keys_are_a_list_of_their_own(world) -> None:
    tenant = world.tenant()
    kept, gone = world.key(tenant).key, world.key(tenant).key
    revoke_key(tenant, gone.public_id, actor="tests")
    assert list(keys_of(tenant, ["live"])) == [kept]
    assert list(keys_of(tenant, ["live"], is_revoked=True)) == [gone]


def test_a_list_with_its_last_uses_is_one_query(world, django_assert_num_queries) -> None:
    tenant = world.tenant()
    used = world.key(tenant).key
    world.key(tenant)
    KeyUse.objects.create(key=used, last_used_at=timezone.now())
    with django_assert_num_queries(1):
        shown = [getattr(key, "use", None) for key in keys_of(tenant, ["live"])]
    assert [use is not None for use in shown] == [False, True]


def test_a_person_sees_the_tenants_they_belong_to_by_name(world, django_assert_num_queries) -> None:
    zeta, acme, _ = world.tenant("Zeta"), world.tenant("Acme"), world.tenant("Other")
    alice = world.person("alice", zeta)
    world.person("bob", acme)
    from keys.services import add_member

    add_member(acme, alice, "viewer")
    with django_assert_num_queries(1):
        found = [(member.tenant, member.role) for member in memberships_of(alice)]
    assert found == [(acme, "viewer"), (zeta, "owner")]
