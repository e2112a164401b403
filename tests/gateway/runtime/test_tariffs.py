"""What gateways keep in memory says the same as the database."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.models import Plan, PlanTerms, Price, TenantPlan
from billing.plans import terms_at, versions_at
from gateway.runtime.tariffs import Tariffs, load_tariffs

pytestmark = pytest.mark.django_db
START = datetime(2026, 6, 1, tzinfo=UTC)
days = st.integers(0, 5)
nanos = st.none() | st.integers(0, 1_000)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


@given(
    prices=st.lists(
        st.tuples(st.sampled_from([None, 0, 1]), days, nanos, nanos),
        unique_by=lambda price: price[:2],
        max_size=6,
    ),
    terms=st.lists(
        st.tuples(st.integers(0, 1), days, st.integers(0, 20_000)),
        unique_by=lambda terms: terms[:2],
        max_size=4,
    ),
    assigned=st.lists(
        st.tuples(st.sampled_from([None, 0, 1]), days), unique_by=lambda one: one[1], max_size=3
    ),
)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_memory_and_database_agree_on_terms_and_price(world, prices, terms, assigned) -> None:
    tenant = world.tenant(balance="0")
    plans = [Plan.objects.create(name=f"{tenant.slug}-{number}") for number in range(2)]
    model = f"m-{tenant.slug}"
    for plan, start, unit_in, unit_out in prices:
        Price.objects.create(
            model=model,
            plan=None if plan is None else plans[plan],
            currency="USD",
            effective_from=day(start),
            input_nanos=unit_in,
            output_nanos=unit_out,
        )
    for plan, start, factor in terms:
        PlanTerms.objects.create(
            plan=plans[plan], currency="USD", effective_from=day(start), price_factor_bps=factor
        )
    for plan, start in assigned:
        TenantPlan.objects.create(
            tenant=tenant, plan=None if plan is None else plans[plan], starts_at=day(start)
        )

    tariffs = load_tariffs()

    for number in range(-1, 7):
        moment = day(number)
        kept = tariffs.terms_for(tenant.pk, "USD", moment.timestamp())
        stored = terms_at(tenant.pk, "USD", moment)
        assert (kept and kept.id) == (stored and stored.pk)
        expected = versions_at([model], "USD", moment, stored).get(model)
        assert tariffs.price_for(model, "USD", moment.timestamp(), kept) == expected


def test_a_plan_may_allow_some_models_only() -> None:
    plan = Plan.objects.create(name="team")
    PlanTerms.objects.create(
        plan=plan, currency="USD", effective_from=START, allowed_models=["small"]
    )
    ((dated,),) = load_tariffs().terms.values()
    assert [dated.value.may_use_model(name) for name in ("small", "large")] == [True, False]


def test_without_plans_and_prices_there_is_no_price() -> None:
    assert Tariffs().terms_for(1, "USD", 0.0) is None
    assert Tariffs().price_for("m", "USD", 0.0, None) is None
