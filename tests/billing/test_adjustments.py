import pytest
from django.db import DatabaseError, transaction

from billing.adjustments import TWO_PEOPLE_ABOVE_NANOS, adjust, approve, decline, refund
from billing.audit import audit
from billing.credits import grant_credit
from billing.errors import BadAdjustment, InsufficientFunds
from billing.models import Adjustment, Payment, Transfer
from billing.wallets import set_credit_limit, top_up
from keys.models import AuditEvent
from tests.billing.acts import DAY, UNIT, held, timezone, wallet_of

pytestmark = pytest.mark.django_db
MUCH = TWO_PEOPLE_ABOVE_NANOS + 1


@pytest.fixture(autouse=True)
def _clean_audit():
    yield
    assert audit().differences == ()


def paid(tenant, units: int, name: str = "p") -> Payment:
    payment_id = f"{tenant.slug}-{name}"
    top_up(tenant, units * UNIT, payment_id=payment_id, actor="tests")
    return Payment.objects.get(external_id=payment_id)


def codes(tenant) -> list[tuple[str, int]]:
    rows = Transfer.objects.filter(tenant_id=tenant.pk).order_by("id")
    return list(rows.values_list("code", "amount_nanos"))


@pytest.mark.parametrize(("nanos", "left"), [(2 * UNIT, 12 * UNIT), (-3 * UNIT, 7 * UNIT)])
def test_a_small_adjustment_is_posted_by_one_with_a_reason(world, nanos, left) -> None:
    tenant = world.tenant(balance="10")
    adjustment = adjust(tenant, nanos, actor="ann", reason="goodwill")
    assert (adjustment.state, adjustment.decided_by) == ("posted", "ann")
    assert wallet_of(tenant).posted_nanos == left
    assert codes(tenant)[1:] == [("adjustment", abs(nanos))]
    assert AuditEvent.objects.get(action="wallet:adjusted").reason == "goodwill"


def test_a_large_one_waits_for_a_second_person(world) -> None:
    tenant = world.tenant(balance="10")
    adjustment = adjust(tenant, MUCH, actor="ann", reason="migration")
    assert (adjustment.state, wallet_of(tenant).posted_nanos) == ("proposed", 10 * UNIT)
    with pytest.raises(BadAdjustment, match="cannot approve"):
        approve(adjustment.pk, actor="ann")
    assert wallet_of(tenant).posted_nanos == 10 * UNIT

    assert approve(adjustment.pk, actor="bob").state == "posted"
    assert wallet_of(tenant).posted_nanos == 10 * UNIT + MUCH
    with pytest.raises(BadAdjustment, match="posted already"):
        approve(adjustment.pk, actor="eve")
    assert wallet_of(tenant).posted_nanos == 10 * UNIT + MUCH


def test_a_declined_one_moves_nothing_ever(world) -> None:
    tenant = world.tenant(balance="10")
    adjustment = adjust(tenant, MUCH, actor="ann", reason="migration")
    decline(adjustment.pk, actor="bob", reason="no")
    with pytest.raises(BadAdjustment, match="declined already"):
        approve(adjustment.pk, actor="eve")
    with pytest.raises(DatabaseError), transaction.atomic():
        Adjustment.objects.update(state="proposed")
    assert codes(tenant)[1:] == []


def test_an_adjustment_takes_nothing_that_is_held(world) -> None:
    tenant = world.tenant(balance="10")
    held(tenant, 8 * UNIT)
    with pytest.raises(InsufficientFunds):
        adjust(tenant, -3 * UNIT, actor="ann", reason="error")
    assert wallet_of(tenant).available_nanos == 2 * UNIT
    assert not Adjustment.objects.exists()


@pytest.mark.parametrize(("nanos", "reason"), [(0, "x"), (1, " "), (1, "x" * 501)])
def test_an_adjustment_needs_an_amount_and_a_reason(world, nanos, reason) -> None:
    with pytest.raises(BadAdjustment):
        adjust(world.tenant(), nanos, actor="ann", reason=reason)


def test_a_payment_is_refunded_up_to_what_it_was(world) -> None:
    tenant = world.tenant(balance="10")
    payment = paid(tenant, 5)
    refund(payment, 3 * UNIT, actor="ann", reason="asked")
    with pytest.raises(BadAdjustment, match="more than is left"):
        refund(payment, 2 * UNIT + 1, actor="ann", reason="asked")
    refund(payment, 2 * UNIT, actor="ann", reason="asked")
    assert wallet_of(tenant).posted_nanos == 10 * UNIT
    assert codes(tenant)[2:] == [("refund", 3 * UNIT), ("refund", 2 * UNIT)]


def test_a_proposed_refund_counts_against_the_payment_until_it_is_declined(world) -> None:
    tenant = world.tenant(balance="0")
    payment = paid(tenant, 300)
    proposed = refund(payment, 200 * UNIT, actor="ann", reason="asked")
    with pytest.raises(BadAdjustment, match="more than is left"):
        refund(payment, 200 * UNIT, actor="ann", reason="asked")
    decline(proposed.pk, actor="bob", reason="no")
    again = refund(payment, 200 * UNIT, actor="ann", reason="asked")
    assert approve(again.pk, actor="bob").state == "posted"
    assert wallet_of(tenant).posted_nanos == 100 * UNIT


def test_neither_credit_nor_what_a_limit_lends_is_refunded(world) -> None:
    tenant = world.tenant(balance="0")
    payment = paid(tenant, 5)
    grant_credit(tenant, 50 * UNIT, grant_id="g", expires_at=timezone.now() + DAY, actor="tests")
    set_credit_limit(tenant, 50 * UNIT, actor="tests", reason="invoiced")
    adjust(tenant, -2 * UNIT, actor="ann", reason="spent")
    with pytest.raises(InsufficientFunds):
        refund(payment, 4 * UNIT, actor="ann", reason="asked")
    refund(payment, 3 * UNIT, actor="ann", reason="asked")
    assert wallet_of(tenant).posted_nanos == 0


def test_a_refund_that_waited_is_refused_where_the_money_is_spent_meanwhile(world) -> None:
    tenant = world.tenant(balance="0")
    payment = paid(tenant, 300)
    proposed = refund(payment, 300 * UNIT, actor="ann", reason="asked")
    adjust(tenant, -1 * UNIT, actor="ann", reason="spent")
    with pytest.raises(InsufficientFunds):
        approve(proposed.pk, actor="bob")
    proposed.refresh_from_db()
    assert proposed.state == "proposed"
