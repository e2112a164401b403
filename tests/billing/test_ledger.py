import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from billing.audit import audit
from billing.ledger import settle_now
from billing.models import Account, Charge, EstimateJob, Exchange, Transfer
from billing.usage import Usage
from tests.billing.acts import a_hold, a_settlement, held, hold_now, phases, settle, wallet_of

pytestmark = pytest.mark.django_db


def test_a_hold_reserves_and_its_charge_gives_the_rest_back(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 400_000_000)

    (answer,) = hold_now(hold)
    assert (answer.is_held, answer.available_nanos) == (True, 600_000_000)

    (settled,) = settle_now([a_settlement(hold, 150_000_000)])
    assert (settled.outcome, settled.charge_nanos) == ("settled", 150_000_000)
    wallet = wallet_of(tenant)
    assert (wallet.posted_nanos, wallet.held_nanos) == (850_000_000, 0)
    assert phases(hold) == [(1, 400_000_000), (2, 150_000_000)]
    exchange = Exchange.objects.get(id=hold.exchange_id)
    assert (exchange.state, exchange.finish_reason, exchange.duration_ms) == ("settled", "stop", 12)
    assert exchange.charge.input_tokens == 3
    assert audit().is_clean


def test_a_batch_serves_one_wallet_in_order_until_it_is_full(world) -> None:
    tenant = world.tenant(balance="1")
    holds = [a_hold(tenant, nanos * 100_000_000) for nanos in (4, 7, 6, 1)]

    answers = hold_now(*holds)

    assert [answer.is_held for answer in answers] == [True, False, True, False]
    assert wallet_of(tenant).held_nanos == 1_000_000_000
    assert Exchange.objects.filter(tenant_id=tenant.pk).count() == 2


def test_a_refused_hold_writes_nothing(world) -> None:
    tenant = world.tenant(balance="0")
    (answer,) = hold_now(a_hold(tenant, 1))
    assert (answer.is_held, answer.posted_nanos) == (False, 0)
    assert not Exchange.objects.filter(tenant_id=tenant.pk).exists()
    assert not Transfer.objects.filter(tenant_id=tenant.pk).exists()


def test_wallets_in_one_batch_do_not_mix(world) -> None:
    rich, poor = world.tenant("Rich", "5"), world.tenant("Poor", "0.5")
    answers = hold_now(
        a_hold(poor, 400_000_000),
        a_hold(rich, 400_000_000),
        a_hold(poor, 400_000_000),
        a_hold(rich, 400_000_000),
    )
    assert [answer.is_held for answer in answers] == [True, True, False, True]
    assert (wallet_of(rich).held_nanos, wallet_of(poor).held_nanos) == (800_000_000, 400_000_000)


def test_a_hold_sent_twice_reserves_once(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 300_000_000)
    assert hold_now(hold)[0].is_held
    assert hold_now(hold)[0].is_held
    assert wallet_of(tenant).held_nanos == 300_000_000
    assert phases(hold) == [(1, 300_000_000)]


def test_a_second_settlement_changes_nothing(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 400_000_000)
    hold_now(hold)
    settle_now([a_settlement(hold, 100_000_000)])

    (again,) = settle_now([a_settlement(hold, 300_000_000)])

    assert again.outcome == "already"
    assert wallet_of(tenant).posted_nanos == 900_000_000
    assert Charge.objects.get(exchange_id=hold.exchange_id).charge_nanos == 100_000_000
    assert audit().is_clean


def test_the_same_exchange_twice_in_one_batch_is_charged_once(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 400_000_000)
    hold_now(hold)
    settle_now([a_settlement(hold, 100_000_000), a_settlement(hold, 100_000_000)])
    assert wallet_of(tenant).posted_nanos == 900_000_000
    assert wallet_of(tenant).held_nanos == 0
    assert audit().is_clean


def test_a_hold_sent_again_is_held_though_the_wallet_has_no_room_left(world) -> None:
    tenant = world.tenant(balance="1")
    hold = held(tenant, 1_000_000_000)
    again, other = hold_now(hold, a_hold(tenant, 1))
    assert (again.is_held, other.is_held) == (True, False)
    assert wallet_of(tenant).held_nanos == 1_000_000_000
    assert phases(hold) == [(1, 1_000_000_000)]


def test_a_hold_that_stands_twice_in_a_batch_is_held_once_and_answered_so(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 600_000_000)
    assert [answer.is_held for answer in hold_now(hold, hold)] == [True, True]
    assert wallet_of(tenant).held_nanos == 600_000_000
    assert phases(hold) == [(1, 600_000_000)]


def test_three_times_a_tenth_is_three_tenths_and_a_fourth_is_refused(world) -> None:
    tenant = world.tenant(balance="0.3")
    for _ in range(3):
        assert settle(held(tenant, 100_000_000), 100_000_000).charge_nanos == 100_000_000
    assert wallet_of(tenant).posted_nanos == 0
    assert not hold_now(a_hold(tenant, 1))[0].is_held


def test_settling_what_was_never_opened_is_unknown(world) -> None:
    tenant = world.tenant(balance="1")
    (answer,) = settle_now([a_settlement(a_hold(tenant, 1), 1)])
    assert answer.outcome == "unknown"
    assert not Charge.objects.filter(tenant_id=tenant.pk).exists()


def test_zero_cost_voids_the_hold(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 400_000_000)
    hold_now(hold)
    settle_now([a_settlement(hold, 0, usage=Usage(), usage_source="none", outcome="failed")])
    assert phases(hold) == [(1, 400_000_000), (3, 400_000_000)]
    assert wallet_of(tenant).available_nanos == 1_000_000_000
    assert audit().is_clean


def test_a_free_exchange_needs_no_wallet_and_is_resolved_once(world) -> None:
    tenant = world.tenant(balance="0")
    hold = a_hold(tenant, 0)
    assert hold_now(hold)[0].is_held
    assert settle_now([a_settlement(hold, 0)])[0].outcome == "settled"
    assert settle_now([a_settlement(hold, 0)])[0].outcome == "already"
    assert phases(hold) == []
    assert audit().is_clean


def test_a_cost_above_the_hold_is_taken_from_what_is_left(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 100_000_000)
    hold_now(hold)
    (answer,) = settle_now([a_settlement(hold, 700_000_000)])
    assert (answer.charge_nanos, answer.shortfall_nanos) == (700_000_000, 0)
    assert wallet_of(tenant).posted_nanos == 300_000_000
    assert audit().is_clean


def test_a_cost_above_everything_never_takes_what_others_hold(world) -> None:
    tenant = world.tenant(balance="1")
    mine, other = a_hold(tenant, 100_000_000), a_hold(tenant, 500_000_000)
    hold_now(mine, other)
    (answer,) = settle_now([a_settlement(mine, 2_000_000_000)])
    assert (answer.charge_nanos, answer.shortfall_nanos) == (500_000_000, 1_500_000_000)
    wallet = wallet_of(tenant)
    assert (wallet.posted_nanos, wallet.held_nanos, wallet.available_nanos) == (
        500_000_000,
        500_000_000,
        0,
    )
    assert audit().is_clean


def test_settling_removes_the_estimate_job(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 1)
    hold_now(hold)
    EstimateJob.objects.create(exchange_id=hold.exchange_id, vendor_model="m")
    settle_now([a_settlement(hold, 1)])
    assert not EstimateJob.objects.filter(exchange_id=hold.exchange_id).exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_transfer SET amount_nanos = 1 WHERE tenant_id = %s",
        "DELETE FROM billing_transfer WHERE tenant_id = %s",
        "UPDATE billing_charge SET charge_nanos = 0 WHERE tenant_id = %s",
        "DELETE FROM billing_charge WHERE tenant_id = %s",
        "UPDATE billing_exchange SET model = 'x' WHERE tenant_id = %s",
        "DELETE FROM billing_exchange WHERE tenant_id = %s",
        "DELETE FROM billing_payment WHERE tenant_id = %s",
    ],
)
def test_what_is_written_stays_written(world, statement: str) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 5)
    hold_now(hold)
    settle_now([a_settlement(hold, 2)])

    with (
        pytest.raises(DatabaseError) as refusal,
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement, [tenant.pk])

    assert isinstance(refusal.value.__cause__, psycopg.errors.RestrictViolation)
    assert phases(hold) == [(1, 5), (2, 2)]


def test_a_second_resolution_is_refused_by_the_index_itself(world) -> None:
    tenant = world.tenant(balance="1")
    hold = a_hold(tenant, 5)
    hold_now(hold)
    settle_now([a_settlement(hold, 2)])
    with (
        pytest.raises(DatabaseError) as refusal,
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,"
            " amount_nanos, phase, code, created_at) SELECT link, tenant_id, debit_account_id,"
            " credit_account_id, 1, 3, 'release', now() FROM billing_transfer"
            " WHERE link = %s AND phase = 2",
            [hold.exchange_id],
        )
    assert isinstance(refusal.value.__cause__, psycopg.errors.UniqueViolation)


def test_a_wallet_below_zero_is_refused_by_the_table_itself(world) -> None:
    wallet = wallet_of(world.tenant(balance="1"))
    with pytest.raises(DatabaseError), transaction.atomic():
        Account.objects.filter(pk=wallet.pk).update(held_nanos=1_000_000_001)
    wallet.refresh_from_db()
    assert wallet.held_nanos == 0
