"""An invoice beside its exchanges and the ledger: what differs is said."""

import pytest
from django.db import connection

from billing.invoices.closing import close_month
from billing.invoices.reconciling import reconcile
from billing.models import Invoice
from tests.billing.month import make_month

pytestmark = pytest.mark.django_db


@pytest.fixture
def invoice(world) -> Invoice:
    traffic = make_month(world, tenants=2, each=60)
    close_month(traffic.month, actor="tests")
    return Invoice.objects.get(tenant=traffic.tenants[1])


def behind_the_triggers(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement)
        cursor.execute("SET LOCAL session_replication_role = origin")


def test_lines_exchanges_and_ledger_are_the_same_sums(invoice) -> None:
    found = reconcile(invoice)
    charged = sum(
        checked.line.amount_nanos
        for group in found.groups
        for checked in group.lines
        if checked.line.part is not None
    )
    assert found.exchanges_nanos == charged
    assert found.ledger_nanos == invoice.exact_nanos
    assert found.difference_nanos == 0
    assert {group.lines[0].line.kind for group in found.groups} >= {"usage", "fee", "credit"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_invoiceline SET amount_nanos = amount_nanos + 1 WHERE kind = 'usage'",
        "UPDATE billing_invoiceline SET amount_nanos = amount_nanos + 1 WHERE kind = 'credit'",
        "UPDATE billing_invoiceline SET amount_nanos = amount_nanos + 1 WHERE kind = 'fee'",
        "UPDATE billing_charge SET output_tokens = output_tokens + 1000000 WHERE charge_nanos > 0",
        "DELETE FROM billing_transfer WHERE phase = 2 AND code = 'charge'",
        "DELETE FROM billing_transfer WHERE code = 'fee'",
        "DELETE FROM billing_invoiceexchange",
    ],
)
def test_whatever_differs_is_a_difference(invoice, statement: str) -> None:
    behind_the_triggers(statement)
    assert reconcile(invoice).difference_nanos != 0


def test_differences_do_not_make_up_for_each_other(invoice) -> None:
    behind_the_triggers(
        "UPDATE billing_invoiceline SET amount_nanos = amount_nanos + CASE kind WHEN 'fee' THEN 1"
        " ELSE -1 END WHERE kind IN ('fee', 'credit')"
    )
    found = reconcile(invoice)
    assert sum(group.invoice_nanos for group in found.groups) == found.ledger_nanos
    assert found.difference_nanos in {1, -1}
