"""A true settlement that comes after the sweep has settled: the wallet ends as if it had not."""

import pytest

from billing.adjustments import TWO_PEOPLE_ABOVE_NANOS
from billing.audit import audit
from billing.late import TOLD, correct, correct_late_settlements
from billing.ledger import Hold
from billing.models import (
    Adjustment,
    AdjustmentState,
    Charge,
    LateSettlement,
    Message,
    NoticeKind,
    StaffNotice,
)
from tests.billing.acts import UNIT, held, settle, wallet_of

pytestmark = pytest.mark.django_db

HOLD = 1_000


def swept(tenant, cost_nanos: int, hold_nanos: int = HOLD) -> Hold:
    """Settled by the sweep: at zero, or by what had been check-pointed."""
    hold = held(tenant, hold_nanos)
    assert settle(hold, cost_nanos, outcome="gateway_died").is_settled_now
    return hold


@pytest.mark.parametrize(
    ("swept_nanos", "true_nanos"), [(0, 700), (300, 700), (700, 300), (700, 0), (0, 2_500)]
)
def test_the_wallet_pays_what_was_true(world, swept_nanos: int, true_nanos: int) -> None:
    tenant = world.tenant(balance="1")
    hold = swept(tenant, swept_nanos)

    assert settle(hold, true_nanos).outcome == "late"
    assert wallet_of(tenant).posted_nanos == UNIT - swept_nanos
    assert correct_late_settlements() == 1

    assert (wallet_of(tenant).posted_nanos, wallet_of(tenant).held_nanos) == (UNIT - true_nanos, 0)
    assert Charge.objects.get(exchange_id=hold.exchange_id).charge_nanos == swept_nanos
    late = LateSettlement.objects.get(pk=hold.exchange_id)
    assert late.moved_nanos == true_nanos - swept_nanos
    assert (late.adjustment.amount_nanos, late.adjustment.state) == (
        swept_nanos - true_nanos,
        AdjustmentState.POSTED,
    )
    (notice,) = StaffNotice.objects.filter(exchange_id=hold.exchange_id)
    assert (notice.kind, notice.tenant_id) == (NoticeKind.LATE_SETTLEMENT, tenant.pk)
    (message,) = Message.objects.filter(tenant=tenant)
    assert (message.user_message, message.total_nanos) == (TOLD, true_nanos - swept_nanos)
    assert audit().differences == ()


def test_however_often_it_comes_and_is_corrected_it_moves_once(world) -> None:
    tenant = world.tenant(balance="1")
    hold = swept(tenant, 0)
    assert [settle(hold, 700).outcome for _ in range(3)] == ["late"] * 3
    correct_late_settlements()
    assert settle(hold, 700).outcome == "late"
    assert correct_late_settlements() == 0
    assert correct(hold.exchange_id) is False
    assert wallet_of(tenant).posted_nanos == UNIT - 700
    assert Adjustment.objects.filter(tenant=tenant).count() == 1


def test_the_same_word_again_is_no_late_one(world) -> None:
    tenant = world.tenant(balance="1")
    hold = held(tenant, HOLD)
    settle(hold, 700)
    assert settle(hold, 700).outcome == "already"
    assert settle(hold, 0, outcome="gateway_died").outcome == "already"
    assert not LateSettlement.objects.filter(pk=hold.exchange_id).exists()


def test_what_says_the_same_cost_corrects_nothing(world) -> None:
    hold = swept(world.tenant(balance="1"), 0)
    assert settle(hold, 0, outcome="failed").outcome == "already"
    assert correct_late_settlements() == 0


def test_it_takes_only_what_is_free_and_the_operator_bears_the_rest(world) -> None:
    tenant = world.tenant(balance="0.000002")
    hold = swept(tenant, 0)
    held(tenant, 1_400)
    settle(hold, 900)
    correct_late_settlements()
    assert wallet_of(tenant).posted_nanos == 2_000 - 600
    assert LateSettlement.objects.get(pk=hold.exchange_id).moved_nanos == 600
    assert audit().differences == ()


def test_what_the_operator_bore_already_is_not_taken_later(world) -> None:
    """900 of cost against a wallet of 500: 400 were a shortfall, and stay one."""
    tenant = world.tenant(balance="0.0000005")
    hold = swept(tenant, 900, hold_nanos=500)
    settle(hold, 950)
    correct_late_settlements()
    assert wallet_of(tenant).posted_nanos == 0
    assert LateSettlement.objects.get(pk=hold.exchange_id).moved_nanos == 0


def test_above_the_threshold_of_adjustments_a_second_person_decides(world) -> None:
    tenant = world.tenant(balance="500")
    cost_nanos = TWO_PEOPLE_ABOVE_NANOS + 1
    hold = swept(tenant, 0, hold_nanos=cost_nanos)
    settle(hold, cost_nanos)
    correct_late_settlements()
    late = LateSettlement.objects.get(pk=hold.exchange_id)
    assert late.adjustment.state == AdjustmentState.PROPOSED
    assert wallet_of(tenant).posted_nanos == 500 * UNIT


def test_a_test_keys_exchange_has_nothing_to_correct(world) -> None:
    from keys.services import create_tenant

    tenant = create_tenant("Bare", f"{world.prefix}-bare", actor="tests")
    hold = held(tenant, 0, is_test=True)
    settle(hold, 0, outcome="gateway_died")
    assert settle(hold, 5).outcome == "late"
    assert correct_late_settlements() == 1
    assert LateSettlement.objects.get(pk=hold.exchange_id).moved_nanos == 0
