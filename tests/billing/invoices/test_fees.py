"""Plan fees: each plan of a month once, charged when the wallet carries them."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import DatabaseError, transaction

from billing.audit import audit
from billing.invoices.fees import collect_fees, make_fees_due
from billing.models import PlanFee, PlanTerms, TenantPlan
from billing.wallets import set_credit_limit, top_up
from keys.models import AuditEvent
from tests.billing.acts import UNIT, wallet_of
from tests.billing.month import utc_month
from tests.billing.test_plans import a_plan

pytestmark = pytest.mark.django_db
MAY = utc_month(date(2026, 5, 1))
DAY = timedelta(days=1)


def on(tenant, plan, starts_at: datetime) -> None:
    TenantPlan.objects.create(tenant=tenant, plan=plan, starts_at=starts_at)


def team(fee: int = 49 * UNIT, name: str = "team"):
    return a_plan(name, monthly_fee_nanos=fee, effective_from=datetime(2026, 1, 1, tzinfo=UTC))


def fees(tenant) -> list[tuple[str, int]]:
    found = PlanFee.objects.filter(tenant=tenant).order_by("pk")
    return list(found.values_list("plan__name", "amount_nanos"))


def test_every_plan_of_the_month_is_paid_once_by_its_first_terms(world) -> None:
    tenant, one, two = world.tenant(), team(), team(99 * UNIT, "business")
    on(tenant, one, MAY.starts_at - 40 * DAY)
    on(tenant, two, MAY.starts_at + 9 * DAY)
    on(tenant, one, MAY.starts_at + 20 * DAY)
    on(tenant, team(1, "later"), MAY.ends_at)
    PlanTerms.objects.create(
        plan=one, currency="USD", effective_from=MAY.starts_at + DAY, monthly_fee_nanos=1
    )
    assert make_fees_due(tenant, MAY) == 2
    assert make_fees_due(tenant, MAY) == 0
    assert fees(tenant) == [("team", 49 * UNIT), ("business", 99 * UNIT)]


def test_no_plan_and_a_free_plan_cost_nothing(world) -> None:
    free, left, none = world.tenant(), world.tenant(), world.tenant()
    on(free, team(0, "free"), MAY.starts_at)
    on(left, team(), MAY.starts_at - 2 * DAY)
    on(left, None, MAY.starts_at)
    assert [make_fees_due(tenant, MAY) for tenant in (free, left, none)] == [0, 0, 0]


def test_a_fee_waits_for_money_and_is_charged_once(world) -> None:
    tenant = world.tenant(balance="48.999999999")
    on(tenant, team(), MAY.starts_at)
    make_fees_due(tenant, MAY)
    assert collect_fees() == 0
    assert wallet_of(tenant).posted_nanos == 49 * UNIT - 1
    top_up(tenant, 1, payment_id="the last nano", actor="tests")
    assert [collect_fees(), collect_fees(tenant.pk)] == [1, 0]
    assert wallet_of(tenant).posted_nanos == 0
    event = AuditEvent.objects.get(tenant_id=tenant.pk, action="fee:charged")
    assert (event.actor, event.detail["amount"]) == ("plan team", "49.000000000")
    assert audit().differences == ()


def test_a_credit_limit_carries_a_fee(world) -> None:
    tenant = world.tenant(balance="0")
    on(tenant, team(), MAY.starts_at)
    set_credit_limit(tenant, 50 * UNIT, actor="tests", reason="postpaid")
    make_fees_due(tenant, MAY)
    assert collect_fees(tenant.pk) == 1
    assert wallet_of(tenant).posted_nanos == -49 * UNIT


def test_a_charged_fee_is_never_changed(world) -> None:
    tenant = world.tenant(balance="50")
    on(tenant, team(), MAY.starts_at)
    make_fees_due(tenant, MAY)
    collect_fees()
    with pytest.raises(DatabaseError, match="is decided"), transaction.atomic():
        PlanFee.objects.filter(tenant=tenant).update(amount_nanos=1)
