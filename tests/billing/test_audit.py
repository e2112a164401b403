"""Each rule of the audit is broken once, behind the triggers' back, and must say so."""

import json

import pytest
from django.db import connection
from django.utils import timezone

from billing.audit import audit
from billing.audit.checks import CHECKS, RATED
from billing.credits import grant_credit
from billing.invoices.acts import act_on
from billing.invoices.closing import close_month
from billing.limits import set_limit
from billing.models import Account, Exchange, Invoice, LimitPeriod, Plan, PlanTerms, Price
from billing.rating import cost_nanos, version_of
from billing.usage import Usage
from tests.billing.acts import DAY, UNIT, held, settle, wallet_of
from tests.billing.month import make_month

pytestmark = pytest.mark.django_db

BREAKS = {
    "balance differs from its transfers": (
        "UPDATE billing_account SET posted_nanos = posted_nanos + 1 WHERE kind = 'credit'"
    ),
    "held money differs from its pending transfers": (
        "UPDATE billing_account SET held_nanos = held_nanos + 1 WHERE kind = 'wallet'"
    ),
    "overspent account": (
        "ALTER TABLE billing_account DROP CONSTRAINT never_overspent;"
        "UPDATE billing_account SET credit_limit_nanos = -100 * 10^9 WHERE kind = 'wallet'"
    ),
    "credit that its wallet does not know of": "UPDATE billing_account SET has_credits = false",
    "hold of an exchange differs from its pending transfers": (
        "UPDATE billing_exchange SET credit_nanos = NULL"
    ),
    "settled exchange without its charge": "DELETE FROM billing_charge WHERE charge_nanos = 0",
    "charge of an exchange that is not settled": (
        "UPDATE billing_exchange SET state = 'open' WHERE hold_nanos = 0"
    ),
    "charge differs from its posted transfers": (
        "UPDATE billing_charge SET charge_nanos = charge_nanos + 1 WHERE charge_nanos > 0"
    ),
    "hold neither posted nor voided, or voided for another amount": (
        "DELETE FROM billing_transfer WHERE phase = 3"
    ),
    "transfer of an unknown exchange": "DELETE FROM billing_exchange WHERE state = 'open'",
    "transfer of an unknown account or tenant": (
        "UPDATE billing_transfer SET tenant_id = tenant_id + 1 WHERE code = 'top_up';"
        "UPDATE billing_payment SET tenant_id = tenant_id + 1"
    ),
    "payment, grant, adjustment or fee differs from its transfer": (
        "UPDATE billing_payment SET amount_nanos = amount_nanos + 1"
    ),
    "refunds above their payment": (
        "INSERT INTO billing_adjustment (tenant_id, payment_id, link, amount_nanos, currency,"
        " reason, state, proposed_by, proposed_at, decided_by)"
        " SELECT tenant_id, id, gen_random_uuid(), -amount_nanos - 1, currency, 'x', 'posted',"
        " 'a', now(), 'b' FROM billing_payment"
    ),
    "spend counter holds another amount than its open exchanges": (
        "UPDATE billing_spendcounter SET held_nanos = held_nanos + 1"
    ),
    "spend counter differs from the charges of its period": (
        "UPDATE billing_spendcounter SET posted_nanos = posted_nanos + 1"
    ),
    "limit that its wallet does not know of": "UPDATE billing_account SET has_limits = false",
    "code that was not credited exactly once": (
        "INSERT INTO billing_redemptioncode (code_hash, last_four, amount_nanos, currency,"
        " created_at, expires_at, redeemed_at, redeemed_by_id)"
        " SELECT '\\x00', 'ABCD', 1, 'USD', now(), now(), now(), id FROM keys_tenant LIMIT 1"
    ),
}

INVOICE_BREAKS = {
    "invoice that its lines do not add up to": (
        "UPDATE billing_invoice SET total_nanos = total_nanos + 1"
    ),
    "invoice lines that differ from their exchanges": (
        "UPDATE billing_invoiceline SET quantity = quantity + 1 WHERE kind = 'usage'"
    ),
    "invoice that lists other exchanges than it counts": (
        "UPDATE billing_invoiceexchange SET is_released = true"
    ),
    "exchange of a closed month on no invoice": "DELETE FROM billing_invoiceexchange",
    "fee or correction on two invoices, or at another amount": (
        "UPDATE billing_planfee SET charged_at = NULL"
    ),
    "credit line that differs from its transfers": (
        "UPDATE billing_invoiceline SET amount_nanos = amount_nanos - 1 WHERE kind = 'credit'"
    ),
    "number that a series leaves out": "UPDATE billing_invoice SET number = number + 100",
}


def _break(statements: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET LOCAL session_replication_role = replica")
        for statement in statements.split(";"):
            cursor.execute(statement)
        cursor.execute("SET LOCAL session_replication_role = origin")


@pytest.fixture
def lived_in(world):
    """A tenant with credit, and an exchange of each kind: open, charged, voided, free."""
    tenant = world.tenant(balance="10")
    grant_credit(tenant, UNIT, grant_id="g", expires_at=timezone.now() + DAY, actor="tests")
    set_limit(tenant, LimitPeriod.DAY, 50 * UNIT, actor="tests")
    settle(held(tenant, UNIT // 2), UNIT // 4)
    settle(held(tenant, 2 * UNIT), 0)
    settle(held(tenant, 0), 0)
    held(tenant, 3 * UNIT)
    assert audit().differences == ()
    return tenant


@pytest.mark.parametrize("rule", BREAKS)
def test_a_broken_rule_is_told(lived_in, rule: str) -> None:
    _break(BREAKS[rule])
    assert rule in {difference.rule for difference in audit().differences}


@pytest.fixture
def invoiced(world) -> None:
    """A month of two tenants, with a credit, a fee and a number."""
    traffic = make_month(world, tenants=2, each=20)
    close_month(traffic.month, actor="tests")
    for invoice in Invoice.objects.all():
        act_on(invoice.pk, "submit", actor="dora", reason="looked at")
        act_on(invoice.pk, "issue", actor="dora", reason="right")
    assert audit().differences == ()


@pytest.mark.parametrize("rule", INVOICE_BREAKS)
def test_a_broken_rule_of_invoices_is_told(invoiced, rule: str) -> None:
    _break(INVOICE_BREAKS[rule])
    assert rule in {difference.rule for difference in audit().differences}


def test_every_rule_is_broken_by_a_test() -> None:
    assert BREAKS.keys() | INVOICE_BREAKS.keys() == CHECKS.keys()


def test_a_difference_names_its_row(world) -> None:
    wallet = wallet_of(world.tenant(balance="1"))
    Account.objects.filter(pk=wallet.pk).update(posted_nanos=999_999_999)
    (difference,) = audit().differences
    assert difference.rule == "balance differs from its transfers"
    assert difference.row == {
        "id": wallet.pk,
        "posted_nanos": 999_999_999,
        "recomputed": 1_000_000_000,
    }


USAGES = (
    Usage(input_tokens=1_000, output_tokens=333),
    Usage(input_tokens=1_001, cached_input_tokens=7, output_tokens=1, reasoning_tokens=5),
    Usage(*range(1, 9)),
)


def test_every_charge_is_explained_by_its_usage_price_and_terms(world) -> None:
    tenant = world.tenant(balance="10")
    price = Price.objects.create(
        model="m",
        currency="USD",
        effective_from=timezone.now(),
        input_nanos=150_000_001,
        output_nanos=600_000_003,
        cached_input_nanos=75,
        per_request_nanos=11,
        tiers=[{"above_prompt_tokens": 1_000, "input_nanos": 300_000_007}],
    )
    terms = PlanTerms.objects.create(
        plan=Plan.objects.create(name="team"),
        currency="USD",
        effective_from=timezone.now(),
        price_factor_bps=8_775,
    )
    for usage in USAGES:
        for one in (None, terms):
            hold = held(tenant, 10**6, price_id=price.pk, terms_id=one and one.pk)
            settle(hold, cost_nanos(usage, version_of(price, one)), usage=usage)
    assert audit().differences == ()

    last = Exchange.objects.order_by("id").last()
    _break(f"UPDATE billing_charge SET input_tokens = 999 WHERE exchange_id = '{last.id}'")
    (difference,) = audit().differences
    assert (difference.rule, difference.row["exchange_id"]) == (RATED, str(last.id))
    json.dumps(difference.row)


def test_a_price_that_vanished_explains_nothing(world) -> None:
    tenant = world.tenant(balance="10")
    hold = held(tenant, 10, price_id=999_999_999)
    settle(hold, 5)
    (difference,) = audit().differences
    assert difference.rule == RATED
