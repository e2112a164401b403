from datetime import timedelta

import pytest
from django.utils import timezone

from billing.limits import period_at, raise_limit, remove_limit, set_guard, set_limit
from billing.models import LimitAction, LimitPeriod, Message, SpendCounter
from billing.watching import forget_counters, tell_crossings, watch_velocity
from keys.models import AuditEvent
from tests.billing.acts import DAY, UNIT, held, settle

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def told(tenant) -> list[tuple[str, int]]:
    rows = Message.objects.filter(tenant=tenant, category="limit").order_by("pk")
    return list(rows.values_list("user_message", "count"))


def spend(tenant, nanos: int, **changes) -> None:
    settle(held(tenant, nanos, **changes), nanos)


def month_limit(tenant, **changes):
    return set_limit(tenant, LimitPeriod.MONTH, 10 * UNIT, actor="tests", **changes)


def test_each_threshold_is_told_once(world) -> None:
    tenant = world.tenant(balance="100")
    month_limit(tenant, action=LimitAction.WARN)
    spend(tenant, 8 * UNIT - 1)
    assert tell_crossings() == 0
    spend(tenant, 1)
    assert (tell_crossings(), tell_crossings()) == (1, 0)
    spend(tenant, 5 * UNIT)
    assert (tell_crossings(), tell_crossings()) == (1, 0)
    assert told(tenant) == [
        ("Your organisation passed 80 % of 10.000000000 USD a month.", 1),
        ("Your organisation passed 100 % of 10.000000000 USD a month.", 1),
    ]


def test_two_thresholds_at_once_are_told_as_the_higher(world) -> None:
    tenant = world.tenant(balance="100")
    user = world.person("bob", tenant)
    key = world.key(tenant).key
    key.created_by = user
    key.save(update_fields=["created_by"])
    month_limit(tenant, user=user, thresholds=[50, 75], action=LimitAction.WARN)
    spend(tenant, 9 * UNIT, key_id=key.pk)
    assert tell_crossings() == 1
    assert told(tenant) == [(f"Keys of {user.email} passed 75 % of 10.000000000 USD a month.", 1)]


def test_a_raised_limit_is_told_again_when_it_is_crossed_again(world) -> None:
    tenant = world.tenant(balance="100")
    limit = month_limit(tenant)
    spend(tenant, 9 * UNIT)
    assert tell_crossings() == 1
    raise_limit(limit, 20 * UNIT, until=timezone.now() + DAY, actor="tests")
    assert tell_crossings() == 0
    spend(tenant, 8 * UNIT)
    assert tell_crossings() == 1


def test_a_removed_limit_tells_nothing(world) -> None:
    tenant = world.tenant(balance="100")
    limit = month_limit(tenant)
    spend(tenant, 9 * UNIT)
    remove_limit(limit, actor="tests")
    assert tell_crossings() == 0


def test_a_period_long_over_is_told_no_more(world) -> None:
    tenant = world.tenant(balance="100")
    month_limit(tenant)
    spend(tenant, 9 * UNIT)
    assert tell_crossings(timezone.now() + 60 * DAY) == 0


def a_guarded_key(world, tenant, *, usual: int, action: LimitAction = LimitAction.WARN):
    """A key with a week of hours of the same spend behind it."""
    key = world.key(tenant).key
    guard = set_guard(key, 10, UNIT, actor="tests", action=action)
    hour, _ = period_at("hour", timezone.now(), "UTC")
    guard.created_at = hour - 30 * DAY
    guard.save(update_fields=["created_at"])
    SpendCounter.objects.bulk_create(
        SpendCounter(limit=guard, starts_at=hour - number * HOUR, posted_nanos=usual)
        for number in range(1, 169)
    )
    return key


def test_a_key_far_beyond_its_usual_hour_is_told_once_an_hour(world) -> None:
    tenant = world.tenant(balance="100")
    key = a_guarded_key(world, tenant, usual=UNIT)
    spend(tenant, 10 * UNIT, key_id=key.pk)
    assert watch_velocity() == 0
    hold = held(tenant, UNIT, key_id=key.pk)
    assert (watch_velocity(), watch_velocity()) == (1, 0)
    assert told(tenant) == [
        (
            (
                f"Key notebooks ({key.masked}) spent 11.000000000 USD within an hour; "
                "usual is 1.000000000."
            ),
            1,
        )
    ]
    key.refresh_from_db()
    assert key.state == "active"
    settle(hold, 0)


def test_a_guard_may_pause_its_key(world) -> None:
    tenant = world.tenant(balance="100")
    key = a_guarded_key(world, tenant, usual=UNIT, action=LimitAction.PAUSE)
    spend(tenant, 11 * UNIT, key_id=key.pk)
    assert watch_velocity() == 1
    key.refresh_from_db()
    assert key.state == "paused"
    assert told(tenant)[0][0].endswith("The key is paused.")
    event = AuditEvent.objects.get(tenant_id=tenant.pk, action="key:paused")
    assert (event.actor, event.subject) == ("velocity guard", key.public_id)


def test_a_little_money_is_never_racing(world) -> None:
    tenant = world.tenant(balance="100")
    key = a_guarded_key(world, tenant, usual=0)
    spend(tenant, UNIT, key_id=key.pk)
    assert watch_velocity() == 0
    spend(tenant, 1, key_id=key.pk)
    assert watch_velocity() == 1


def test_a_guard_refuses_nothing_and_other_keys_are_not_its_business(world) -> None:
    tenant = world.tenant(balance="100")
    a_guarded_key(world, tenant, usual=0)
    spend(tenant, 50 * UNIT, key_id=world.key(tenant, "other").key.pk)
    assert watch_velocity() == 0


def test_old_counters_are_dropped_unless_something_is_held(world) -> None:
    tenant = world.tenant(balance="100")
    month_limit(tenant)
    set_limit(tenant, LimitPeriod.TOTAL, 50 * UNIT, actor="tests")
    hold = held(tenant, UNIT)
    years_later = timezone.now() + 800 * DAY
    assert forget_counters(years_later) == 0
    settle(hold, UNIT)
    assert forget_counters(years_later) == 1
    assert [counter.limit.period for counter in SpendCounter.objects.all()] == ["total"]
    a_guarded_key(world, tenant, usual=1)
    assert forget_counters(timezone.now() + 7 * DAY) == 145
