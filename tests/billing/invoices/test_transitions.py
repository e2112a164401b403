"""The table, and the trigger that refuses whatever the table does not have."""

import itertools

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from billing.invoices.transitions import BY_ACT, TRANSITIONS, available_actions
from billing.models import Invoice, InvoiceState
from tests.billing.invoices.made import an_invoice

pytestmark = pytest.mark.django_db


def _force(invoice: Invoice, state: str) -> bool:
    """Past the services, straight at the row. With a number where the state asks for one."""
    values = {"state": state}
    if state in {"issued", "paid"} and invoice.number is None:
        values |= {"series": "t", "number": invoice.pk, "issued_at": timezone.now()}
    try:
        with transaction.atomic():
            Invoice.objects.filter(pk=invoice.pk).update(**values)
    except DatabaseError:
        return False
    return True


def test_the_table_and_the_trigger_allow_the_same_moves(world) -> None:
    tenant = world.tenant()
    allowed = {(str(source), str(t.target)) for t in TRANSITIONS for source in t.sources}
    moves = list(itertools.permutations(map(str, InvoiceState), 2))
    assert len(moves) == 20
    for number, (source, target) in enumerate(moves):
        invoice = an_invoice(tenant, state=source, month=number)
        assert _force(invoice, target) == ((source, target) in allowed), (source, target)


def test_buttons_are_those_of_the_state() -> None:
    acts = {state: [t.act for t in available_actions(state)] for state in InvoiceState}
    assert acts == {
        "draft": ["submit", "void"],
        "review": ["issue", "return", "void"],
        "issued": ["pay", "void"],
        "paid": [],
        "void": [],
    }
    assert len(BY_ACT) == len(TRANSITIONS)
