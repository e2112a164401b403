import pytest

from billing.audit import audit
from billing.errors import DuplicatePayment, InsufficientFunds
from billing.models import Account, Payment, Transfer
from billing.wallets import open_wallet, set_credit_limit, top_up
from keys.models import AuditEvent
from tests.billing.acts import UNIT, a_hold, held, hold_now, settle, wallet_of

pytestmark = pytest.mark.django_db


def test_opening_a_wallet_twice_opens_one(world) -> None:
    tenant = world.tenant(balance="0")
    assert open_wallet(tenant) == open_wallet(tenant)
    assert Account.objects.filter(tenant=tenant).count() == 1


def test_a_payment_is_credited_with_its_transfer_and_its_trail(world) -> None:
    tenant = world.tenant(balance="0")
    wallet = top_up(tenant, 5 * UNIT, payment_id="p-1", actor="alice", reason="bank")
    assert wallet.posted_nanos == 5 * UNIT
    payment = Payment.objects.get(external_id="p-1")
    transfer = Transfer.objects.get(link=payment.link)
    assert (transfer.amount_nanos, transfer.code, transfer.reason) == (5 * UNIT, "top_up", "bank")
    assert AuditEvent.objects.get(tenant_id=tenant.pk, action="wallet:topped-up").actor == "alice"
    assert audit().is_clean


def test_one_payment_is_credited_once_whatever_events_tell_of_it(world) -> None:
    tenant = world.tenant(balance="0")
    top_up(tenant, 5 * UNIT, payment_id="payment-1", actor="event-1")
    for event in ("event-1", "event-2"):
        with pytest.raises(DuplicatePayment):
            top_up(tenant, 5 * UNIT, payment_id="payment-1", actor=event)
    assert wallet_of(tenant).posted_nanos == 5 * UNIT
    assert Transfer.objects.filter(tenant_id=tenant.pk).count() == 1
    assert AuditEvent.objects.filter(tenant_id=tenant.pk, action="wallet:topped-up").count() == 1


@pytest.mark.parametrize("nanos", [0, -1])
def test_nothing_is_no_top_up(world, nanos) -> None:
    tenant = world.tenant(balance="0")
    with pytest.raises(ValueError, match="above zero"):
        top_up(tenant, nanos, payment_id="p", actor="tests")
    assert not Payment.objects.filter(tenant=tenant).exists()


def test_a_credit_limit_lets_a_wallet_go_below_zero_and_no_further(world) -> None:
    tenant = world.tenant(balance="1")
    set_credit_limit(tenant, 2 * UNIT, actor="alice", reason="invoiced")
    hold = held(tenant, 3 * UNIT)
    assert not hold_now(a_hold(tenant, 1))[0].is_held
    assert settle(hold, 3 * UNIT).charge_nanos == 3 * UNIT
    assert wallet_of(tenant).posted_nanos == -2 * UNIT
    assert AuditEvent.objects.get(action="wallet:credit-limit-set").detail == {
        "from": "0.000000000",
        "to": "2.000000000",
        "currency": "USD",
    }
    assert audit().is_clean


def test_a_credit_limit_in_use_is_not_taken_away(world) -> None:
    tenant = world.tenant(balance="0")
    set_credit_limit(tenant, 2 * UNIT, actor="alice", reason="invoiced")
    held(tenant, UNIT)
    with pytest.raises(InsufficientFunds):
        set_credit_limit(tenant, UNIT - 1, actor="alice", reason="risk")
    assert wallet_of(tenant).credit_limit_nanos == 2 * UNIT
    assert set_credit_limit(tenant, UNIT, actor="alice", reason="risk").available_nanos == 0
