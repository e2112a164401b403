from datetime import timedelta

import pytest
from django.utils import timezone

from billing.audit import audit
from billing.credits import expire_credits, grant_credit
from billing.errors import DuplicateGrant
from billing.models import Account, Exchange
from keys.models import AuditEvent
from tests.billing.acts import (
    DAY,
    UNIT,
    a_hold,
    a_settlement,
    credits_of,
    entries,
    extend_now,
    held,
    hold_now,
    settle,
    settle_now,
    wallet_of,
)

pytestmark = pytest.mark.django_db
LATER = timedelta(days=100)


@pytest.fixture(autouse=True)
def _clean_audit():
    yield
    assert audit().differences == ()


def grant(tenant, units: int, days: int = 30, name: str = "") -> None:
    grant_credit(
        tenant,
        units * UNIT,
        grant_id=f"{tenant.slug}-{name or days}",
        expires_at=timezone.now() + days * DAY,
        actor="tests",
    )


def test_credit_is_an_account_of_its_own_granted_once(world) -> None:
    tenant = world.tenant(balance="1")
    grant(tenant, 5)
    with pytest.raises(DuplicateGrant):
        grant(tenant, 5)
    assert credits_of(tenant) == [(5 * UNIT, 0)]
    assert (wallet_of(tenant).posted_nanos, wallet_of(tenant).has_credits) == (UNIT, True)
    assert AuditEvent.objects.filter(tenant_id=tenant.pk, action="credit:granted").count() == 1


@pytest.mark.parametrize(("nanos", "lasts"), [(0, DAY), (-1, DAY), (1, timedelta(0))])
def test_nothing_is_no_grant(world, nanos, lasts) -> None:
    tenant = world.tenant()
    with pytest.raises(ValueError, match="above zero"):
        grant_credit(tenant, nanos, grant_id="g", expires_at=timezone.now() + lasts, actor="tests")
    assert credits_of(tenant) == []


def test_the_soonest_to_expire_is_held_first_and_the_wallet_last(world) -> None:
    tenant = world.tenant(balance="10")
    grant(tenant, 3, days=20)
    grant(tenant, 2, days=10)

    hold = a_hold(tenant, 6 * UNIT)
    (answer,) = hold_now(hold)

    assert (answer.posted_nanos, answer.held_nanos) == (15 * UNIT, 6 * UNIT)
    assert credits_of(tenant) == [(2 * UNIT, 2 * UNIT), (3 * UNIT, 3 * UNIT)]
    assert wallet_of(tenant).held_nanos == UNIT
    assert Exchange.objects.get(id=hold.exchange_id).credit_nanos == 5 * UNIT


def test_a_charge_is_posted_where_it_fits_and_the_rest_is_voided(world) -> None:
    tenant = world.tenant(balance="10")
    grant(tenant, 2, days=10)
    grant(tenant, 3, days=20)
    hold = held(tenant, 6 * UNIT)

    assert settle(hold, 4 * UNIT).charge_nanos == 4 * UNIT

    assert credits_of(tenant) == [(0, 0), (UNIT, 0)]
    assert (wallet_of(tenant).posted_nanos, wallet_of(tenant).held_nanos) == (10 * UNIT, 0)
    assert sorted(entries(hold)) == [
        ("credit", 1, 2 * UNIT),
        ("credit", 1, 3 * UNIT),
        ("credit", 2, 2 * UNIT),
        ("credit", 2, 2 * UNIT),
        ("wallet", 1, UNIT),
        ("wallet", 3, UNIT),
    ]


def test_nothing_charged_voids_every_part_once(world) -> None:
    tenant = world.tenant(balance="10")
    grant(tenant, 2)
    hold = held(tenant, 6 * UNIT)
    settlement = a_settlement(hold, 0, outcome="failed")
    answers = settle_now([settlement, settlement])
    assert [answer.outcome for answer in answers] == ["settled", "settled"]
    assert settle_now([settlement])[0].outcome == "already"
    assert credits_of(tenant) == [(2 * UNIT, 0)]
    assert wallet_of(tenant).available_nanos == 10 * UNIT
    assert [phase for _, phase, _ in entries(hold)].count(3) == 2


def test_a_hold_sent_again_holds_once(world) -> None:
    tenant = world.tenant(balance="0")
    grant(tenant, 2)
    hold = a_hold(tenant, 2 * UNIT)
    assert [answer.is_held for answer in hold_now(hold, hold)] == [True, True]
    assert [answer.is_held for answer in hold_now(hold)] == [True]
    assert credits_of(tenant) == [(2 * UNIT, 2 * UNIT)]
    assert entries(hold) == [("credit", 1, 2 * UNIT)]


def test_credit_and_wallet_together_are_the_room_and_not_a_nano_more(world) -> None:
    tenant = world.tenant(balance="1")
    grant(tenant, 2)
    more = a_hold(tenant, 3 * UNIT + 1)
    assert not hold_now(more)[0].is_held
    assert entries(more) == []
    assert hold_now(a_hold(tenant, 3 * UNIT))[0].is_held
    assert not hold_now(a_hold(tenant, 1))[0].is_held


def test_a_batch_serves_credits_in_order_beside_a_plain_wallet(world) -> None:
    rich, plain = world.tenant("Rich", "1"), world.tenant("Plain", "1")
    grant(rich, 1)
    answers = hold_now(
        a_hold(plain, UNIT),
        a_hold(rich, UNIT),
        a_hold(plain, UNIT),
        a_hold(rich, UNIT),
        a_hold(rich, 1),
        a_hold(rich, 0),
    )
    assert [answer.is_held for answer in answers] == [True, True, False, True, False, True]
    assert wallet_of(rich).held_nanos == wallet_of(plain).held_nanos == UNIT


def test_an_overrun_takes_free_credit_before_the_wallet(world) -> None:
    tenant = world.tenant(balance="10")
    grant(tenant, 2)
    hold = held(tenant, UNIT)
    assert settle(hold, 4 * UNIT).charge_nanos == 4 * UNIT
    assert credits_of(tenant) == [(0, 0)]
    assert wallet_of(tenant).posted_nanos == 8 * UNIT


def test_an_overrun_of_a_hold_on_the_wallet_takes_credit_that_came_later(world) -> None:
    tenant = world.tenant(balance="1")
    hold = held(tenant, UNIT)
    grant(tenant, 2)
    answer = settle(hold, 5 * UNIT)
    assert (answer.charge_nanos, answer.shortfall_nanos) == (3 * UNIT, 2 * UNIT)
    assert (credits_of(tenant), wallet_of(tenant).posted_nanos) == ([(0, 0)], 0)


def test_an_overrun_never_takes_what_others_hold(world) -> None:
    tenant = world.tenant(balance="1")
    grant(tenant, 2)
    mine, other = held(tenant, UNIT), held(tenant, UNIT)
    answer = settle(mine, 9 * UNIT)
    assert (answer.charge_nanos, answer.shortfall_nanos) == (2 * UNIT, 7 * UNIT)
    assert settle(other, UNIT).charge_nanos == UNIT


def test_special_and_plain_exchanges_of_one_wallet_settle_together(world) -> None:
    tenant = world.tenant(balance="4")
    plain = held(tenant, UNIT)
    grant(tenant, 1)
    special = held(tenant, 2 * UNIT)
    answers = settle_now([a_settlement(plain, 3 * UNIT), a_settlement(special, 2 * UNIT)])
    assert [answer.charge_nanos for answer in answers] == [3 * UNIT, 2 * UNIT]
    assert (credits_of(tenant), wallet_of(tenant).posted_nanos) == ([(0, 0)], 0)


def test_an_extension_holds_on_credit_first_too(world) -> None:
    tenant = world.tenant(balance="10")
    grant(tenant, 2)
    hold = held(tenant, UNIT)
    answer = extend_now(hold, 4 * UNIT)
    assert (answer.outcome, answer.hold_nanos) == ("extended", 4 * UNIT)
    assert (credits_of(tenant), wallet_of(tenant).held_nanos) == ([(2 * UNIT, 2 * UNIT)], 2 * UNIT)
    assert settle(hold, 4 * UNIT).shortfall_nanos == 0


def test_what_expires_goes_back_and_what_is_held_when_its_request_ends(world) -> None:
    tenant = world.tenant(balance="1")
    grant(tenant, 5)
    hold = held(tenant, 2 * UNIT)
    then = timezone.now() + LATER

    assert expire_credits(then) == 1
    assert expire_credits(then) == 0
    assert credits_of(tenant) == [(2 * UNIT, 2 * UNIT)]
    assert wallet_of(tenant).has_credits

    assert settle(hold, UNIT).charge_nanos == UNIT
    assert expire_credits(then) == 1
    assert credits_of(tenant) == [(0, 0)]
    assert not wallet_of(tenant).has_credits
    assert wallet_of(tenant).posted_nanos == UNIT


def test_expired_credit_is_spent_by_nobody_even_before_the_sweep(world) -> None:
    tenant = world.tenant(balance="0")
    grant(tenant, 5)
    then = timezone.now() + LATER
    (answer,) = hold_now(a_hold(tenant, 1, created_at=then))
    assert (answer.is_held, answer.posted_nanos) == (False, 0)
    hold = held(tenant, UNIT)
    assert settle(hold, 2 * UNIT, settled_at=then).shortfall_nanos == UNIT


def test_an_empty_credit_lets_its_wallet_take_the_short_path_again(world) -> None:
    tenant = world.tenant(balance="1")
    grant(tenant, 1)
    settle(held(tenant, UNIT), UNIT)
    assert expire_credits() == 0
    assert not wallet_of(tenant).has_credits


def test_credit_is_in_one_currency(world) -> None:
    tenant = world.tenant(balance="0")
    grant(tenant, 5)
    Account.objects.create(tenant=tenant, kind="wallet", currency="EUR")
    Account.objects.get_or_create(tenant=None, kind="revenue", currency="EUR")
    assert not hold_now(a_hold(tenant, 1, currency="EUR"))[0].is_held
