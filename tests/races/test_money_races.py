"""Races for money, each lost with its guard out and won with it in. No gateway is needed."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from billing import codes
from billing.audit import audit
from billing.codes import make_code, redeem_code
from billing.errors import BadCode, DuplicatePayment
from billing.ids import new_exchange_id
from billing.limits import set_limit
from billing.locks import lock_wallet
from billing.models import (
    Account,
    AccountKind,
    LimitPeriod,
    Payment,
    RedemptionCode,
    SpendCounter,
    TransferCode,
)
from billing.transfers import move, operator_account
from billing.wallets import top_up
from tests.billing.acts import UNIT, a_hold, entries, held, hold_now, settle, wallet_of

pytestmark = pytest.mark.usefixtures("committed")

DELIVERIES = 5
REDEEMERS = 20
CALLS = 15
HOLD = 400_000
BUDGET = 1_000_000


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Each in a thread and a connection of its own, all let go at once."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        try:
            connection.ensure_connection()
            barrier.wait()
            return work(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


# --- one payment, several deliveries ----------------------------------------------------------


def test_a_payment_delivered_at_once_is_credited_once(world) -> None:
    tenant = world.tenant(balance="0")

    def deliver(number: int) -> bool:
        event = f"event-{number % 2}"  # two different events tell of the one payment
        try:
            top_up(tenant, 10 * UNIT, payment_id=f"{tenant.slug}-pay", actor=event)
        except DuplicatePayment:
            return False
        return True

    assert together(DELIVERIES, deliver).count(True) == 1
    assert wallet_of(tenant).posted_nanos == 10 * UNIT
    assert Payment.objects.filter(tenant=tenant).count() == 1
    assert audit().differences == ()


def test_without_the_unique_id_a_payment_is_credited_again(world) -> None:
    """Read whether it is known, then write: what every delivery reads is "no"."""
    tenant = world.tenant(balance="0")
    have_read = threading.Barrier(DELIVERIES)
    funding = operator_account(AccountKind.FUNDING, "USD")

    def deliver(_number: int) -> None:
        is_known = Payment.objects.filter(external_id=f"{tenant.slug}-pay").exists()
        have_read.wait()
        if is_known:
            return
        with transaction.atomic():
            payment = Payment.objects.create(
                external_id=f"{tenant.slug}-pay-{new_exchange_id()}",
                tenant=tenant,
                link=new_exchange_id(),
                amount_nanos=10 * UNIT,
                currency="USD",
            )
            move(
                funding,
                lock_wallet(tenant.pk, "USD"),
                10 * UNIT,
                TransferCode.TOP_UP,
                tenant_id=tenant.pk,
                link=payment.link,
            )

    together(DELIVERIES, deliver)
    assert wallet_of(tenant).posted_nanos == DELIVERIES * 10 * UNIT


# --- one code, many redeemers -----------------------------------------------------------------


def two_tenants_redeem(world, redeem: Callable[..., Any]) -> tuple[list[bool], int]:
    tenants = [world.tenant(name, "0") for name in ("One", "Two")]
    expires_at = timezone.now() + timedelta(days=1)
    made = make_code(5 * UNIT, "USD", expires_at=expires_at, actor="tests")

    def attempt(number: int) -> bool:
        try:
            redeem(tenants[number % 2], made.text)
        except BadCode:
            return False
        return True

    won = together(REDEEMERS, attempt)
    return won, sum(wallet_of(tenant).posted_nanos for tenant in tenants)


def test_a_code_redeemed_at_once_is_credited_once(world) -> None:
    won, credited = two_tenants_redeem(
        world, lambda tenant, text: redeem_code(tenant, text, actor="tests")
    )
    assert (won.count(True), credited) == (1, 5 * UNIT)
    assert audit().differences == ()


def test_without_the_conditional_statement_a_code_is_credited_again(world) -> None:
    have_read = threading.Barrier(REDEEMERS)

    def read_then_write(tenant, text: str) -> None:
        code = RedemptionCode.objects.get(
            code_hash=codes.fingerprint(codes._plain(text), codes.settings.KEY_PEPPERS[0])
        )
        have_read.wait()
        if code.redeemed_at is not None:
            raise BadCode("used")
        top_up(tenant, code.amount_nanos, payment_id=f"code-{new_exchange_id()}", actor="tests")

    won, credited = two_tenants_redeem(world, read_then_write)
    assert (won.count(True), credited) == (REDEEMERS, REDEEMERS * 5 * UNIT)


# --- a key's budget is held, not read ---------------------------------------------------------


def call_together(world) -> tuple[Any, list[bool], SpendCounter]:
    tenant = world.tenant(balance="1")
    key = world.key(tenant).key
    limit = set_limit(tenant, LimitPeriod.DAY, BUDGET, key=key, actor="tests")
    holds = [a_hold(tenant, HOLD, key_id=key.pk) for _ in range(CALLS)]
    answers = together(CALLS, lambda number: hold_now(holds[number])[0])
    for hold, answer in zip(holds, answers, strict=True):
        assert answer.is_held == bool(entries(hold))
    counter = SpendCounter.objects.get(limit=limit)
    return holds, [answer.is_held for answer in answers], counter


def test_only_as_many_pass_as_a_keys_budget_carries(world) -> None:
    holds, passed, counter = call_together(world)
    assert passed.count(True) == BUDGET // HOLD == 2
    assert (counter.posted_nanos, counter.held_nanos) == (0, 2 * HOLD)
    for hold, is_held in zip(holds, passed, strict=True):
        if is_held:
            settle(hold, 390_000)
    counter.refresh_from_db()
    assert (counter.posted_nanos, counter.held_nanos) == (780_000, 0)
    assert audit().differences == ()


@contextmanager
def changed(function: str, before: str, after: str):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_functiondef(%s::regprocedure)", [function])
        (original,) = cursor.fetchone()
        assert before in original
        cursor.execute(original.replace(before, after))
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(original)


def test_a_budget_that_is_compared_with_what_was_spent_lets_all_pass(world) -> None:
    """Without holds in the comparison: nothing is spent yet, so nothing is in the way."""
    with changed(
        "farthing_limit_passed(bigint, bigint, timestamptz, bigint)",
        "l.posted_nanos + l.held_nanos + nanos > l.amount_nanos",
        "l.posted_nanos + nanos > l.amount_nanos",
    ):
        holds, passed, counter = call_together(world)
    assert passed == [True] * CALLS
    assert counter.held_nanos == CALLS * HOLD > BUDGET
    for hold in holds:
        settle(hold, 0)


# --- midnight ---------------------------------------------------------------------------------

MIDNIGHT = datetime(2026, 11, 3, tzinfo=UTC)  # past: no audit's running period


def cross_midnight(world) -> list[tuple[int, int]]:
    """One request of the last moment, settled while those of the new day begin."""
    tenant = world.tenant(balance="10")
    limit = set_limit(tenant, LimitPeriod.DAY, 2 * UNIT, actor="tests")
    SpendCounter.objects.filter(limit=limit).delete()
    last = held(tenant, 2 * UNIT, created_at=MIDNIGHT - timedelta(microseconds=1))
    fresh = [a_hold(tenant, UNIT, created_at=MIDNIGHT) for _ in range(4)]

    def act(number: int) -> Any:
        if number == len(fresh):
            return settle(last, 2 * UNIT, settled_at=MIDNIGHT + timedelta(seconds=5))
        return hold_now(fresh[number])[0].is_held

    *passed, _ = together(len(fresh) + 1, act)
    assert passed.count(True) == 2
    for hold, is_held in zip(fresh, passed, strict=True):
        if is_held:
            settle(hold, UNIT, settled_at=MIDNIGHT + timedelta(seconds=9))
    counters = SpendCounter.objects.filter(limit=limit).order_by("starts_at")
    return list(counters.values_list("posted_nanos", "held_nanos"))


def test_a_request_that_crosses_midnight_counts_in_the_day_it_began(world) -> None:
    assert cross_midnight(world) == [(2 * UNIT, 0), (2 * UNIT, 0)]
    assert audit().differences == ()


def test_counted_in_the_day_of_its_end_it_leaves_both_days_wrong(world) -> None:
    """The same with the counter looked up anew when the request ends."""
    signature = "farthing_resolve(bigint, uuid, bigint, bigint, bigint[], timestamptz)"
    with changed(
        signature,
        "WHERE c.id = ANY (of_counters)",
        "WHERE c.starts_at = date_trunc('day', at_time, 'UTC') AND c.held_nanos >= hold_nanos"
        " AND c.limit_id IN (SELECT o.limit_id FROM billing_spendcounter o"
        " WHERE o.id = ANY (of_counters))",
    ):
        yesterday, _ = cross_midnight(world)
    assert yesterday == (0, 2 * UNIT)
    SpendCounter.objects.filter(held_nanos__gt=0).update(held_nanos=0)


def test_the_last_word_on_a_counter_is_the_tables(world) -> None:
    tenant = world.tenant(balance="1")
    limit = set_limit(tenant, LimitPeriod.DAY, UNIT, actor="tests")
    with pytest.raises(Exception, match="counter_not_negative"), transaction.atomic():
        SpendCounter.objects.filter(limit=limit).update(held_nanos=-1)
    assert Account.objects.get(tenant=tenant, kind="wallet").has_limits
