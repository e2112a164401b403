"""The ledger against its model: every act, in any order, with duplicates.

The fast profile runs with every test run, the long one by hand (`pytest -m long`).
"""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from time_machine import travel

from billing.adjustments import adjust, refund
from billing.audit import audit
from billing.credits import expire_credits, grant_credit
from billing.errors import (
    BadAdjustment,
    DuplicateGrant,
    DuplicatePayment,
    InsufficientFunds,
)
from billing.limits import remove_limit, set_limit
from billing.models import Account, LimitPeriod, Payment, Plan, PlanTerms, Price, SpendCounter
from billing.plans import assign_plan, terms_at, versions_at
from billing.rating import cost_nanos
from billing.usage import Usage
from billing.wallets import open_wallet, set_credit_limit, top_up
from keys.services import create_tenant
from tests.billing.acts import a_hold, a_settlement, credits_of, extend_now, hold_now, settle_now
from tests.properties.model import Books, Cap, Purse

START = datetime(2026, 12, 1, 12, tzinfo=UTC)
amounts = st.integers(1, 60)
SMALL = {"input_nanos": 10**6, "output_nanos": 3 * 10**6}  # a nano, and three, a token

_FROM_TRANSFERS = """
SELECT a.id,
       coalesce(sum(CASE WHEN t.phase IN (0, 2) AND t.credit_account_id = a.id
                         THEN t.amount_nanos
                         WHEN t.phase IN (0, 2) THEN -t.amount_nanos END), 0)::bigint
FROM billing_account a
LEFT JOIN billing_transfer t ON a.id IN (t.debit_account_id, t.credit_account_id)
GROUP BY a.id
"""


class LedgerMachine(RuleBasedStateMachine):
    exchanges = Bundle("exchanges")
    payments = Bundle("payments")
    grants = Bundle("grants")
    limits = Bundle("limits")

    def __init__(self) -> None:
        super().__init__()
        self.atomic = transaction.atomic()
        self.atomic.__enter__()
        self.travel = travel(START, tick=False)
        self.clock = self.travel.start()
        self.now = START
        self.books = Books()
        self.count = 0

    @initialize()
    def begin(self) -> None:
        self.tenant = create_tenant("Acme", "machine", actor="tests")
        open_wallet(self.tenant)
        self.plan = Plan.objects.create(name="machine")
        self.prices()

    def teardown(self) -> None:
        try:
            report = audit()
            assert report.differences == ()
            self.replay()
        finally:
            self.travel.stop()
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    def number(self) -> int:
        self.count += 1
        return self.count

    # --- money comes and goes -----------------------------------------------------------------

    @rule(target=payments, nanos=amounts)
    def pay(self, nanos):
        name = f"p{self.number()}"
        top_up(self.tenant, nanos, payment_id=name, actor="tests")
        self.books.wallet.posted += nanos
        self.books.given += nanos
        return name

    @rule(name=payments, nanos=amounts)
    def pay_again(self, name, nanos):
        with pytest.raises(DuplicatePayment):
            top_up(self.tenant, nanos, payment_id=name, actor="tests")

    @rule(name=payments, nanos=amounts)
    def give_back(self, name, nanos):
        free = self.books.wallet.posted - self.books.wallet.held
        payment = Payment.objects.get(external_id=name)
        try:
            refund(payment, nanos, actor="tests", reason="asked")
        except BadAdjustment:
            return
        except InsufficientFunds:
            assert nanos > free
            return
        assert nanos <= free
        self.books.wallet.posted -= nanos
        self.books.given -= nanos

    @rule(nanos=st.integers(-30, 30).filter(bool))
    def correct(self, nanos):
        fits = self.books.wallet.room + nanos >= 0
        try:
            adjust(self.tenant, nanos, actor="tests", reason="error")
        except InsufficientFunds:
            assert not fits
            return
        assert fits
        self.books.wallet.posted += nanos
        self.books.given += nanos

    @rule(nanos=st.integers(0, 40))
    def lend(self, nanos):
        wallet = self.books.wallet
        fits = wallet.posted + nanos - wallet.held >= 0
        try:
            set_credit_limit(self.tenant, nanos, actor="tests", reason="terms")
        except InsufficientFunds:
            assert not fits
            return
        assert fits
        wallet.credit_limit = nanos

    @rule(target=grants, nanos=amounts, days=st.integers(1, 3))
    def grant(self, nanos, days):
        name, expires_at = f"g{self.number()}", self.now + timedelta(days=days)
        grant_credit(self.tenant, nanos, grant_id=name, expires_at=expires_at, actor="tests")
        self.books.credits.append(Purse(posted=nanos, expires_at=expires_at))
        self.books.given += nanos
        return name

    @rule(name=grants)
    def grant_again(self, name):
        with pytest.raises(DuplicateGrant):
            grant_credit(
                self.tenant,
                5,
                grant_id=name,
                expires_at=self.now + timedelta(days=9),
                actor="tests",
            )

    @rule()
    def sweep(self):
        expire_credits(self.now)
        assert expire_credits(self.now) == 0
        self.books.expire(self.now)

    @rule(hours=st.sampled_from([1, 12, 30]))
    def wait(self, hours):
        self.now += timedelta(hours=hours)
        self.clock.move_to(self.now)

    # --- exchanges ----------------------------------------------------------------------------

    @rule(target=exchanges, nanos=amounts, times=st.integers(1, 2))
    def hold(self, nanos, times):
        hold = a_hold(self.tenant, nanos, created_at=self.now)
        opened = self.books.open(nanos, self.now)
        answers = hold_now(*(hold,) * times)
        assert [answer.is_held for answer in answers] == [opened is not None] * times
        return multiple() if opened is None else (hold, opened)

    @rule(pair=exchanges)
    def hold_again(self, pair):
        assert hold_now(pair[0])[0].is_held

    @rule(pair=exchanges, nanos=st.integers(1, 90))
    def extend(self, pair, nanos):
        hold, opened = pair
        expected = "closed"
        if opened.charge is None:
            expected = "extended" if self.books.extend(opened, nanos, self.now) else "refused"
        answer = extend_now(hold, nanos, extended_at=self.now)
        assert answer.outcome == expected
        if expected == "extended":
            assert extend_now(hold, nanos, extended_at=self.now).hold_nanos == opened.held

    @rule(pair=consumes(exchanges), cost=st.integers(0, 120), times=st.integers(1, 2))
    def resolve(self, pair, cost, times):
        self.end(pair, cost, times)

    @rule(target=exchanges, pair=exchanges, cost=st.integers(0, 120))
    def resolve_and_keep(self, pair, cost):
        """So that what is settled can be held, extended and settled again."""
        self.end(pair, cost, 1)
        return multiple()

    def end(self, pair, cost, times):
        hold, opened = pair
        settlement = a_settlement(hold, cost, settled_at=self.now)
        if opened.charge is not None:
            assert settle_now([settlement])[0].outcome == "already"
            return
        charge = self.books.settle(opened, cost, self.now)
        answers = settle_now([settlement] * times)
        assert {(one.charge_nanos, one.shortfall_nanos) for one in answers} == {
            (charge, cost - charge)
        }

    # --- prices and plans ---------------------------------------------------------------------

    @rule()
    def prices(self):
        """A new price from now on; the clock moves, since a version has a time of its own."""
        self.now += timedelta(seconds=1)
        self.clock.move_to(self.now)
        unit = 1 + self.number() % 3
        Price.objects.create(
            model="m",
            currency="USD",
            effective_from=self.now,
            **{name: unit * nanos for name, nanos in SMALL.items()},
        )

    @rule(factor=st.sampled_from([5_000, 10_000, 15_000]))
    def terms(self, factor):
        self.now += timedelta(seconds=1)
        self.clock.move_to(self.now)
        PlanTerms.objects.create(
            plan=self.plan, currency="USD", effective_from=self.now, price_factor_bps=factor
        )
        assign_plan(self.tenant, self.plan, actor="tests")

    @rule(tokens=st.integers(1, 5), changes=st.booleans())
    def rated(self, tokens, changes):
        """A price that changes in flight does not change what was opened under the old one."""
        terms = terms_at(self.tenant.pk, "USD", self.now)
        version = versions_at(["m"], "USD", self.now, terms)["m"]
        usage = Usage(input_tokens=tokens, output_tokens=tokens)
        cost = cost_nanos(usage, version)
        hold = a_hold(
            self.tenant,
            cost + 1,
            created_at=self.now,
            price_id=version.id,
            terms_id=version.terms_id,
        )
        opened = self.books.open(cost + 1, self.now)
        assert hold_now(hold)[0].is_held == (opened is not None)
        if changes:
            self.prices()
        if opened is not None:
            charge = self.books.settle(opened, cost, self.now)
            settlement = a_settlement(hold, cost, usage=usage, settled_at=self.now)
            assert settle_now([settlement])[0].charge_nanos == charge == cost

    # --- limits -------------------------------------------------------------------------------

    @precondition(lambda self: not self.books.caps)
    @rule(
        target=limits,
        period=st.sampled_from(["day", "total"]),
        amount=st.integers(20, 200),
    )
    def cap(self, period, amount):
        limit = set_limit(self.tenant, LimitPeriod(period), amount, actor="tests")
        cap = Cap(period, amount)
        slot = cap.slot(self.now)
        for exchange in self.books.exchanges:
            if cap.slot(exchange.opened_at) == slot:
                is_open = exchange.charge is None
                cap.move(slot, exchange.held if is_open else 0, exchange.charge or 0)
                if is_open:
                    exchange.caps.append((cap, slot))
        self.books.caps.append(cap)
        return limit, cap

    @rule(pair=consumes(limits))
    def uncap(self, pair):
        limit, cap = pair
        remove_limit(limit, actor="tests")
        self.books.caps = [one for one in self.books.caps if one is not cap]

    # --- what is always true ------------------------------------------------------------------

    @invariant()
    def purses_are_as_the_model_has_them(self):
        wallet = Account.objects.get(tenant__slug="machine", kind="wallet")
        model = self.books.wallet
        assert (wallet.posted_nanos, wallet.held_nanos) == (model.posted, model.held)
        assert wallet.available_nanos >= 0
        ordered = sorted(
            range(len(self.books.credits)), key=lambda n: (self.books.credits[n].expires_at, n)
        )
        assert credits_of(self.tenant) == [
            (self.books.credits[n].posted, self.books.credits[n].held) for n in ordered
        ]

    @invariant()
    def nothing_is_made_and_nothing_is_lost(self):
        purses = [self.books.wallet, *self.books.credits]
        assert sum(purse.posted for purse in purses) == self.books.given - self.books.earned
        with connection.cursor() as cursor:
            cursor.execute(_FROM_TRANSFERS)
            assert sum(nanos for _, nanos in cursor.fetchall()) == 0

    @invariant()
    def counters_are_as_the_model_has_them(self):
        for cap in self.books.caps:
            counters = SpendCounter.objects.filter(limit__removed_at=None, limit__period=cap.period)
            found = sorted(counters.values_list("posted_nanos", "held_nanos"))
            slots = {*cap.posted, *cap.held}
            expected = sorted((cap.posted.get(s, 0), cap.held.get(s, 0)) for s in slots)
            strip = [pair for pair in found if pair != (0, 0)]
            assert strip == [pair for pair in expected if pair != (0, 0)]

    def replay(self):
        """Every kept balance again from nothing but its transfers."""
        with connection.cursor() as cursor:
            cursor.execute(_FROM_TRANSFERS)
            replayed = dict(cursor.fetchall())
        for account in Account.objects.filter(tenant=self.tenant):
            assert account.posted_nanos == replayed[account.pk]


def profile(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.django_db
def test_the_ledger_does_what_its_model_does() -> None:
    run_state_machine_as_test(LedgerMachine, settings=profile(12, 20))


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.django_db
def test_the_ledger_does_what_its_model_does_two_thousand_times() -> None:
    run_state_machine_as_test(LedgerMachine, settings=profile(2_000, 40))
