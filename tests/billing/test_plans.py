from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from billing.audit import audit
from billing.credits import expire_credits
from billing.errors import BadPlanStart
from billing.limits import remove_limit, set_limit
from billing.models import (
    Account,
    Credit,
    LimitPeriod,
    Plan,
    PlanTerms,
    Price,
    SpendLimit,
    TenantPlan,
)
from billing.plans import (
    assign_plan,
    assigned_at,
    give_what_plans_include,
    terms_at,
    versions_at,
)
from keys.models import AuditEvent
from tests.billing.acts import UNIT

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_plan(name: str, **changes) -> Plan:
    plan, _ = Plan.objects.get_or_create(name=name)
    terms = {"currency": "USD", "effective_from": NOW - HOUR, **changes}
    PlanTerms.objects.create(plan=plan, **terms)
    return plan


def a_price(model: str, unit: int, **changes) -> Price:
    numbers = {"input_nanos": unit, "output_nanos": 2 * unit}
    price = {"currency": "USD", "effective_from": NOW - HOUR, **numbers, **changes}
    return Price.objects.create(model=model, **price)


def inputs(models: list[str], terms: PlanTerms | None, moment: datetime = NOW) -> dict[str, int]:
    found = versions_at(models, "USD", moment, terms)
    return {name: version.rates.input_nanos for name, version in found.items()}


def test_a_tenant_is_on_the_plan_that_started_last(world) -> None:
    tenant, team, club = world.tenant(), a_plan("team"), a_plan("club")
    now = timezone.now()
    assign_plan(tenant, team, actor="tests", starts_at=now)
    assign_plan(tenant, club, actor="tests", starts_at=now + HOUR)
    assign_plan(tenant, None, actor="tests", starts_at=now + 2 * HOUR)

    assert assigned_at(tenant.pk, now - HOUR) is None
    assert assigned_at(tenant.pk, now).plan == team
    assert assigned_at(tenant.pk, now + HOUR).plan == club
    assert assigned_at(tenant.pk, now + 3 * HOUR).plan is None
    assert terms_at(tenant.pk, "USD", now + 3 * HOUR) is None
    assert AuditEvent.objects.filter(tenant_id=tenant.pk, action="plan:assigned").count() == 3


def test_assigning_twice_is_assigning_once(world) -> None:
    tenant, team = world.tenant(), a_plan("team")
    now = timezone.now()
    assert assign_plan(tenant, team, actor="tests", starts_at=now) == assign_plan(
        tenant, team, actor="tests", starts_at=now
    )
    with pytest.raises(BadPlanStart):
        assign_plan(tenant, a_plan("club"), actor="tests", starts_at=now)
    assert TenantPlan.objects.filter(tenant=tenant).count() == 1


def test_a_plan_does_not_start_in_the_past(world) -> None:
    tenant = world.tenant()
    with pytest.raises(BadPlanStart):
        assign_plan(tenant, a_plan("team"), actor="tests", starts_at=timezone.now() - HOUR)
    assert not TenantPlan.objects.filter(tenant=tenant).exists()


def test_terms_have_versions_by_currency(world) -> None:
    tenant, team = world.tenant(), a_plan("team", price_factor_bps=9_000)
    now = timezone.now()
    assign_plan(tenant, team, actor="tests", starts_at=now)
    a_plan("team", effective_from=now + HOUR, price_factor_bps=8_000)
    a_plan("team", currency="EUR", price_factor_bps=7_000)
    assert terms_at(tenant.pk, "USD", now).price_factor_bps == 9_000
    assert terms_at(tenant.pk, "USD", now + HOUR).price_factor_bps == 8_000
    assert terms_at(tenant.pk, "EUR", now).price_factor_bps == 7_000
    assert terms_at(tenant.pk, "CHF", now) is None


def test_a_discount_is_in_every_unit_price_and_names_its_terms() -> None:
    a_price(
        "m",
        150_000_001,
        cached_input_nanos=5,
        per_request_nanos=100,
        tiers=[{"above_prompt_tokens": 9, "input_nanos": 20}],
    )
    terms = a_plan("team", price_factor_bps=8_500).terms.get()
    (version,) = versions_at(["m"], "USD", NOW, terms).values()
    assert version.terms_id == terms.pk
    assert version.rates.input_nanos == 127_500_001  # 127_500_000.85, half up
    assert version.rates.cached_input_nanos == 4  # 4.25
    assert version.per_request_nanos == 85
    assert version.tiers[0].rates.input_nanos == 17


def test_a_plans_own_price_is_final_and_wins() -> None:
    team = a_plan("team", price_factor_bps=5_000)
    a_price("m", 100)
    a_price("m", 80, plan=team)
    a_price("n", 100)
    terms, other = team.terms.get(), a_plan("club").terms.get()
    assert inputs(["m", "n"], terms) == {"m": 80, "n": 50}
    assert inputs(["m", "n"], other) == {"m": 100, "n": 100}
    assert inputs(["m"], None) == {"m": 100}


def test_a_plans_price_that_is_incomplete_takes_the_model_off_that_plan() -> None:
    team = a_plan("team")
    a_price("m", 100)
    a_price("m", 80, plan=team, output_nanos=None)
    assert inputs(["m"], team.terms.get()) == {}
    assert inputs(["m"], None) == {"m": 100}


def test_a_plans_price_to_come_does_not_hide_the_list_price_of_today() -> None:
    team = a_plan("team")
    a_price("m", 100)
    a_price("m", 80, plan=team, effective_from=NOW + HOUR)
    assert inputs(["m"], team.terms.get()) == {"m": 100}
    assert inputs(["m"], team.terms.get(), NOW + HOUR) == {"m": 80}


def test_terms_and_assignments_never_change(world) -> None:
    tenant, team = world.tenant(), a_plan("team")
    assign_plan(tenant, team, actor="tests")
    for rows, changes in (
        (PlanTerms.objects.filter(plan=team), {"price_factor_bps": 1}),
        (TenantPlan.objects.filter(tenant=tenant), {"plan": None}),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            rows.update(**changes)
        with pytest.raises(DatabaseError), transaction.atomic():
            rows.delete()


# --- what plans include -----------------------------------------------------------------------


def limits_of(tenant) -> list[tuple[str, int, str]]:
    rows = SpendLimit.objects.filter(account__tenant=tenant, removed_at=None).order_by("pk")
    return list(rows.values_list("period", "amount_nanos", "action"))


def a_giving_plan(**changes) -> Plan:
    spend_limits = {"month": {"amount_nanos": 100 * UNIT, "action": "hard"}}
    terms = {"included_credit_nanos": 5 * UNIT, "spend_limits": spend_limits, **changes}
    return a_plan("team", **terms)


def test_a_plan_gives_its_credit_once_a_month_and_takes_it_back(world) -> None:
    tenant = world.tenant(balance="0")
    tenant.time_zone = "Asia/Tokyo"
    tenant.save(update_fields=["time_zone"])
    december = datetime(2027, 11, 30, 15, tzinfo=UTC)  # the first of December in Tokyo
    assign_plan(tenant, a_giving_plan(), actor="tests")

    assert give_what_plans_include(december) == 2
    assert give_what_plans_include(december) == 0
    (account,) = Account.objects.filter(tenant=tenant, kind="credit")
    assert (account.posted_nanos, account.expires_at) == (
        5 * UNIT,
        datetime(2027, 12, 31, 15, tzinfo=UTC),
    )
    assert Credit.objects.get().external_id.endswith(f"-tenant-{tenant.pk}-2027-12")

    january = datetime(2027, 12, 31, 15, tzinfo=UTC)
    assert expire_credits(january) == 1
    assert give_what_plans_include(january) == 1
    assert audit().is_clean


def test_default_limits_come_with_the_plan_and_a_removed_one_stays_removed(world) -> None:
    tenant = world.tenant()
    assign_plan(tenant, a_giving_plan(included_credit_nanos=0), actor="tests")
    assert give_what_plans_include() == 1
    assert limits_of(tenant) == [("month", 100 * UNIT, "hard")]
    remove_limit(SpendLimit.objects.get(), actor="alice")
    assert give_what_plans_include() == 0
    assert limits_of(tenant) == []


def test_a_limit_of_the_tenants_own_is_left_alone(world) -> None:
    tenant = world.tenant()
    set_limit(tenant, LimitPeriod.MONTH, UNIT, actor="alice")
    assign_plan(tenant, a_giving_plan(included_credit_nanos=0), actor="tests")
    assert give_what_plans_include() == 0
    assert limits_of(tenant) == [("month", UNIT, "hard")]


def test_a_tenant_that_is_suspended_or_on_no_plan_is_given_nothing(world) -> None:
    idle, left = world.tenant("Idle"), world.tenant("Left")
    plan = a_giving_plan()
    for tenant in (idle, left):
        assign_plan(tenant, plan, actor="tests")
    assign_plan(left, None, actor="tests")
    idle.state = "suspended"
    idle.save(update_fields=["state"])
    assert give_what_plans_include() == 0
