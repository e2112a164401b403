import dataclasses
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from billing.audit import audit
from billing.errors import BadLimit
from billing.limits import (
    follow_time_zones,
    period_at,
    raise_limit,
    remove_limit,
    set_guard,
    set_limit,
    standing,
)
from billing.models import Exchange, LimitAction, LimitPeriod, SpendCounter, SpendLimit
from keys.models import AuditEvent, Tenant
from tests.billing.acts import (
    DAY,
    UNIT,
    a_hold,
    entries,
    extend_now,
    held,
    hold_now,
    settle,
    wallet_of,
)

pytestmark = pytest.mark.django_db
ZONES = (
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Havana",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
)


@pytest.fixture(autouse=True)
def _clean_audit():
    yield
    assert audit().differences == ()


def limit(tenant, units: int, period: str = "month", **changes) -> SpendLimit:
    return set_limit(tenant, LimitPeriod(period), units * UNIT, actor="tests", **changes)


def counted(limit: SpendLimit) -> list[tuple[int, int]]:
    rows = SpendCounter.objects.filter(limit=limit).order_by("starts_at")
    return list(rows.values_list("posted_nanos", "held_nanos"))


# --- what is refused --------------------------------------------------------------------------


def test_holds_count_against_a_limit_before_they_are_spent(world) -> None:
    tenant = world.tenant(balance="10")
    key = world.key(tenant).key
    of_key = limit(tenant, 1, key=key)

    answers = hold_now(*(a_hold(tenant, UNIT * 4 // 10, key_id=key.pk) for _ in range(15)))

    assert [answer.is_held for answer in answers] == [True, True] + [False] * 13
    assert counted(of_key) == [(0, UNIT * 8 // 10)]
    assert wallet_of(tenant).held_nanos == UNIT * 8 // 10


def test_a_refusal_says_which_limit_its_size_and_when_it_resets(world) -> None:
    tenant = world.tenant(balance="10")
    key = world.key(tenant).key
    of_key = limit(tenant, 2, "day", key=key)
    settle(held(tenant, UNIT, key_id=key.pk), UNIT // 2)
    held(tenant, UNIT, key_id=key.pk)

    refused = a_hold(tenant, UNIT, key_id=key.pk)
    (answer,) = hold_now(refused)

    passed = answer.limit
    assert dataclasses.asdict(passed) == {
        "limit_id": of_key.pk,
        "scope": "key",
        "period": "day",
        "amount_nanos": 2 * UNIT,
        "posted_nanos": UNIT // 2,
        "held_nanos": UNIT,
        "needed_nanos": UNIT,
        "resets_at": period_at("day", refused.created_at, "UTC")[1],
    }
    assert passed.frees_soon
    assert not hold_now(a_hold(tenant, 2 * UNIT, key_id=key.pk))[0].limit.frees_soon
    assert entries(refused) == []
    assert not Exchange.objects.filter(id=refused.exchange_id).exists()
    assert answer.available_nanos == 8_500_000_000


def test_a_refusal_for_the_money_names_no_limit(world) -> None:
    tenant = world.tenant(balance="1")
    limit(tenant, 100)
    (answer,) = hold_now(a_hold(tenant, UNIT + 1))
    assert (answer.is_held, answer.limit) == (False, None)


def test_several_periods_and_scopes_count_at_once_and_the_tightest_refuses(world) -> None:
    tenant = world.tenant(balance="100")
    user = world.person("bob", tenant, "developer")
    key = world.key(tenant).key
    key.created_by = user
    key.save(update_fields=["created_by"])
    limits = [
        limit(tenant, 10, "day"),
        limit(tenant, 20, "week", user=user),
        limit(tenant, 5, "month", key=key),
        limit(tenant, 30, "total"),
    ]
    hold = held(tenant, 3 * UNIT, key_id=key.pk)
    assert [counted(one) for one in limits] == [[(0, 3 * UNIT)]] * 4
    assert sorted(Exchange.objects.get(id=hold.exchange_id).counters) == sorted(
        SpendCounter.objects.values_list("pk", flat=True)
    )

    assert hold_now(a_hold(tenant, 3 * UNIT, key_id=key.pk))[0].limit.scope == "key"
    other = world.key(tenant, "other").key
    assert hold_now(a_hold(tenant, 8 * UNIT, key_id=other.pk))[0].limit.period == "day"

    settle(hold, UNIT)
    assert [counted(one) for one in limits] == [[(UNIT, 0)]] * 4
    held(tenant, UNIT, key_id=other.pk)
    assert [counted(one)[0][1] for one in limits] == [UNIT, 0, 0, UNIT]


def test_spend_adds_up_exactly_to_its_limit(world) -> None:
    tenant = world.tenant(balance="10")
    set_limit(tenant, LimitPeriod.TOTAL, 300_000_000, actor="tests")
    for _ in range(3):
        settle(held(tenant, 100_000_000), 100_000_000)
    (answer,) = hold_now(a_hold(tenant, 100_000_000))
    assert (answer.is_held, answer.limit.posted_nanos) == (False, 300_000_000)


def test_what_failed_leaves_every_counter_as_it_was(world) -> None:
    tenant = world.tenant(balance="10")
    day = limit(tenant, 5, "day")
    settle(held(tenant, UNIT), UNIT)
    for _ in range(5):
        settle(held(tenant, 4 * UNIT), 0, outcome="failed")
    assert counted(day) == [(UNIT, 0)]
    assert wallet_of(tenant).available_nanos == 9 * UNIT


def test_a_limit_that_warns_counts_and_refuses_nothing(world) -> None:
    tenant = world.tenant(balance="10")
    warn = limit(tenant, 1, action=LimitAction.WARN)
    settle(held(tenant, 3 * UNIT), 3 * UNIT)
    assert counted(warn) == [(3 * UNIT, 0)]


def test_a_free_request_is_no_spend(world) -> None:
    tenant = world.tenant(balance="0")
    limit(tenant, 0)
    assert hold_now(a_hold(tenant, 0))[0].is_held
    assert not hold_now(a_hold(tenant, 1))[0].is_held


def test_a_hold_sent_again_is_counted_once(world) -> None:
    tenant = world.tenant(balance="10")
    day = limit(tenant, 1, "day")
    hold = a_hold(tenant, UNIT)
    assert [answer.is_held for answer in hold_now(hold, hold)] == [True, True]
    assert [answer.is_held for answer in hold_now(hold)] == [True]
    assert counted(day) == [(0, UNIT)]


def test_a_charge_beyond_its_hold_is_counted_as_it_is(world) -> None:
    tenant = world.tenant(balance="10")
    day = limit(tenant, 2, "day")
    settle(held(tenant, UNIT), 5 * UNIT)
    assert counted(day) == [(5 * UNIT, 0)]
    assert not hold_now(a_hold(tenant, 1))[0].is_held


def test_an_extension_stops_at_the_limit(world) -> None:
    tenant = world.tenant(balance="10")
    day = limit(tenant, 3, "day")
    hold = held(tenant, UNIT)
    assert extend_now(hold, 2 * UNIT).is_extended
    assert extend_now(hold, 2 * UNIT).is_extended
    answer = extend_now(hold, 4 * UNIT)
    assert (answer.outcome, answer.hold_nanos) == ("refused", 2 * UNIT)
    assert (answer.limit.limit_id, answer.limit.needed_nanos) == (day.pk, 2 * UNIT)
    assert counted(day) == [(0, 2 * UNIT)]
    settle(hold, UNIT)
    assert extend_now(hold, 3 * UNIT).outcome == "closed"
    assert counted(day) == [(UNIT, 0)]


def test_an_extension_that_the_wallet_cannot_carry_changes_nothing(world) -> None:
    tenant = world.tenant(balance="2")
    hold = held(tenant, UNIT)
    assert extend_now(hold, 2 * UNIT + 1).outcome == "refused"
    assert wallet_of(tenant).held_nanos == UNIT
    assert extend_now(hold, 2 * UNIT).hold_nanos == 2 * UNIT
    assert settle(hold, 3 * UNIT).shortfall_nanos == UNIT


# --- periods ----------------------------------------------------------------------------------


def test_an_exchange_counts_in_the_period_it_was_opened_in(world) -> None:
    tenant = world.tenant(balance="10")
    day = limit(tenant, 1, "day")
    SpendCounter.objects.all().delete()
    midnight = datetime(2026, 11, 3, tzinfo=UTC)
    before = held(tenant, UNIT, created_at=midnight - timedelta(microseconds=1))
    after = held(tenant, UNIT, created_at=midnight)
    assert counted(day) == [(0, UNIT), (0, UNIT)]
    settle(before, UNIT // 2, settled_at=midnight + DAY)
    assert counted(day) == [(UNIT // 2, 0), (0, UNIT)]
    settle(after, 0)


@given(st.integers(946_684_800, 2_208_988_800), st.sampled_from(ZONES))
def test_periods_begin_and_end_with_the_days_of_their_zone(second, zone) -> None:
    moment = datetime.fromtimestamp(second, UTC)
    for period in ("day", "week", "month"):
        starts_at, resets_at = period_at(period, moment, zone)
        local = moment.astimezone(ZoneInfo(zone))
        first, after = _dates(period, local)
        assert starts_at.astimezone(ZoneInfo(zone)).date() == first
        assert resets_at.astimezone(ZoneInfo(zone)).date() == after
        # Nothing of the day before is in it, and nothing of its last day is left out.
        assert (starts_at - timedelta(hours=3)).astimezone(ZoneInfo(zone)).date() < first
        last = (resets_at - timedelta(microseconds=1)).astimezone(ZoneInfo(zone)).date()
        assert first <= last <= after


def _dates(period: str, local: datetime) -> tuple:
    day = local.date()
    if period == "day":
        return day, _existing(day + timedelta(1), local.tzinfo)
    if period == "week":
        first = day - timedelta(day.weekday())
        return _existing(first, local.tzinfo), _existing(first + timedelta(7), local.tzinfo)
    first = day.replace(day=1)
    following = (first + timedelta(31)).replace(day=1)
    return _existing(first, local.tzinfo), _existing(following, local.tzinfo)


def _existing(day, zone):
    """Samoa had no 30 December 2011: its midnight is the next day's."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=zone)
    return noon.astimezone(UTC).astimezone(zone).date()


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Paris", datetime(2026, 3, 29, 12, tzinfo=UTC), 23),
        ("Europe/Paris", datetime(2026, 10, 25, 12, tzinfo=UTC), 25),
        ("Europe/Paris", datetime(2026, 6, 1, 12, tzinfo=UTC), 24),
    ],
)
def test_a_day_of_a_clock_change_is_as_long_as_it_is(zone, day, hours) -> None:
    starts_at, resets_at = period_at("day", day, zone)
    assert resets_at - starts_at == timedelta(hours=hours)


def test_a_total_never_resets() -> None:
    starts_at, resets_at = period_at("total", timezone.now(), "UTC")
    assert (starts_at, resets_at) == (datetime(1970, 1, 1, tzinfo=UTC), None)


def test_a_tenant_that_moves_counts_in_its_new_days(world) -> None:
    tenant = world.tenant(balance="10")
    day = limit(tenant, 5, "day")
    settle(held(tenant, UNIT), UNIT)
    hold = held(tenant, UNIT)
    Tenant.objects.filter(pk=tenant.pk).update(time_zone="Pacific/Kiritimati")

    assert follow_time_zones() == 1
    assert follow_time_zones() == 0

    day.refresh_from_db()
    assert day.time_zone == "Pacific/Kiritimati"
    (counter,) = SpendCounter.objects.filter(limit=day)
    assert counter.starts_at == period_at("day", timezone.now(), "Pacific/Kiritimati")[0]
    settle(hold, UNIT)


# --- setting ----------------------------------------------------------------------------------


def test_a_new_limit_counts_what_its_period_spent_and_holds(world) -> None:
    tenant = world.tenant(balance="10")
    mine, other = (world.key(tenant, name).key for name in ("mine", "other"))
    settle(held(tenant, 2 * UNIT, key_id=mine.pk), UNIT)
    settle(held(tenant, 2 * UNIT, key_id=other.pk), 2 * UNIT)
    open_hold = held(tenant, UNIT, key_id=mine.pk)

    of_key, of_tenant = limit(tenant, 5, key=mine), limit(tenant, 9, "total")
    assert (counted(of_key), counted(of_tenant)) == ([(UNIT, UNIT)], [(3 * UNIT, UNIT)])

    settle(open_hold, UNIT // 2)
    assert counted(of_key) == [(UNIT + UNIT // 2, 0)]
    assert counted(of_tenant) == [(3 * UNIT + UNIT // 2, 0)]


def test_setting_a_limit_again_changes_its_amount(world) -> None:
    tenant = world.tenant(balance="10")
    first = limit(tenant, 5)
    held(tenant, 2 * UNIT)
    assert limit(tenant, 2) == first
    assert counted(first) == [(0, 2 * UNIT)]
    assert not hold_now(a_hold(tenant, 1))[0].is_held
    assert AuditEvent.objects.filter(tenant_id=tenant.pk, action="limit:set").count() == 2


def test_a_raise_ends_with_its_date(world) -> None:
    tenant = world.tenant(balance="100")
    day = limit(tenant, 1, "total")
    raise_limit(day, 10 * UNIT, until=timezone.now() + DAY, actor="tests", reason="launch")
    assert hold_now(a_hold(tenant, 10 * UNIT))[0].is_held
    assert hold_now(a_hold(tenant, UNIT))[0].limit.amount_nanos == 10 * UNIT
    later = a_hold(tenant, UNIT, created_at=timezone.now() + 2 * DAY)
    assert hold_now(later)[0].limit.amount_nanos == UNIT


@pytest.mark.parametrize(("units", "days"), [(1, 1), (10, -1)])
def test_a_raise_is_upwards_and_ahead(world, units, days) -> None:
    day = limit(world.tenant(), 1, "day")
    with pytest.raises(BadLimit):
        raise_limit(day, units * UNIT, until=timezone.now() + days * DAY, actor="tests")
    day.refresh_from_db()
    assert day.raised_until is None


def test_a_removed_limit_refuses_nothing_and_what_is_open_ends_well(world) -> None:
    tenant = world.tenant(balance="10")
    day = limit(tenant, 1, "day")
    hold = held(tenant, UNIT)
    remove_limit(day, actor="tests")
    remove_limit(day, actor="tests")
    assert not wallet_of(tenant).has_limits
    plain = held(tenant, 5 * UNIT)
    settle(hold, UNIT)
    settle(plain, UNIT)
    assert counted(day) == [(UNIT, 0)]
    assert AuditEvent.objects.filter(action="limit:removed").count() == 1


def test_limits_stand_as_a_key_sees_them(world) -> None:
    tenant = world.tenant(balance="10")
    key = world.key(tenant).key
    limit(tenant, 5, key=key)
    limit(tenant, 9, "total")
    set_guard(key, 10, UNIT, actor="tests")
    settle(held(tenant, 2 * UNIT, key_id=key.pk), UNIT)
    held(tenant, UNIT, key_id=key.pk)
    month, total = standing(tenant, key_id=key.pk)
    assert (month.scope, month.period, month.action, month.remaining_nanos) == (
        "key",
        "month",
        "hard",
        3 * UNIT,
    )
    assert (total.posted_nanos, total.held_nanos, total.resets_at) == (UNIT, UNIT, None)
    assert [one.scope for one in standing(tenant)] == ["tenant"]


def test_wrong_limits_are_refused(world) -> None:
    tenant, other = world.tenant(), world.tenant("Other")
    key, user = world.key(other).key, world.person("eve", other)
    mine = world.key(tenant).key
    for wrong in (
        lambda: limit(tenant, 1, key=key),
        lambda: limit(tenant, 1, user=user),
        lambda: limit(tenant, 1, key=mine, user=user),
        lambda: limit(tenant, -1),
        lambda: limit(tenant, 1, "hour"),
        lambda: limit(tenant, 1, action=LimitAction.PAUSE),
        lambda: limit(tenant, 1, thresholds=[0]),
        lambda: set_guard(mine, 1, UNIT, actor="tests"),
        lambda: set_guard(mine, 10, UNIT, actor="tests", action=LimitAction.HARD),
    ):
        with pytest.raises(BadLimit):
            wrong()
    assert not SpendLimit.objects.exists()
