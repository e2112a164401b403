"""Acts on invoices: by the table, with a reason, with a number without gaps; frozen afterwards."""

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from billing.errors import BadInvoiceAct
from billing.invoices.acts import act_on
from billing.models import Invoice, InvoiceExchange, InvoiceLine, InvoiceSeries
from keys.models import AuditEvent
from tests.billing.invoices.made import WAYS, an_invoice

pytestmark = pytest.mark.django_db
DORA = "dora@example.test"


def trail(invoice: Invoice) -> list[tuple[str, str, str]]:
    events = AuditEvent.objects.filter(subject=invoice.public_id).order_by("pk")
    return list(events.values_list("action", "actor", "reason"))


def test_the_way_of_an_invoice_leaves_its_trail(world) -> None:
    invoice = an_invoice(world.tenant(), state="paid")
    assert trail(invoice) == [
        ("invoice:submitted", DORA, "to submit"),
        ("invoice:issued", DORA, "to issue"),
        ("invoice:paid", DORA, "to pay"),
    ]
    assert invoice.number_text == f"{timezone.now():%Y}-{invoice.number:05d}"


@pytest.mark.parametrize(("state", "act"), [("draft", "issue"), ("paid", "void"), ("void", "pay")])
def test_what_the_table_does_not_have_is_refused_and_changes_nothing(world, state, act) -> None:
    invoice = an_invoice(world.tenant(), state=state)
    before = trail(invoice)
    with pytest.raises(BadInvoiceAct, match=f"The invoice is {state} already"):
        act_on(invoice.pk, act, actor=DORA, reason="why not")
    assert Invoice.objects.get(pk=invoice.pk).state == state
    assert trail(invoice) == before


@pytest.mark.parametrize("reason", ["", "  \n", "x" * 501])
def test_an_act_without_a_reason_is_refused(world, reason: str) -> None:
    invoice = an_invoice(world.tenant())
    with pytest.raises(BadInvoiceAct, match="Give a reason"):
        act_on(invoice.pk, "submit", actor=DORA, reason=reason)
    assert Invoice.objects.get(pk=invoice.pk).state == "draft"
    assert trail(invoice) == []


def test_an_act_that_there_is_not_is_refused(world) -> None:
    invoice = an_invoice(world.tenant())
    with pytest.raises(BadInvoiceAct, match="no such act"):
        act_on(invoice.pk, "shred", actor=DORA, reason="tidy")


def test_numbers_follow_each_other_and_a_failed_issue_leaves_none_out(world) -> None:
    tenant = world.tenant()
    first = an_invoice(tenant, state="issued", month=1)
    undone = an_invoice(tenant, state="review", month=2)
    with transaction.atomic():
        act_on(undone.pk, "issue", actor=DORA, reason="about to fail")
        transaction.set_rollback(True)
    second = an_invoice(tenant, state="issued", month=3)
    assert second.number == first.number + 1
    assert InvoiceSeries.objects.get(name=second.series).last_number == second.number


def test_a_void_one_keeps_its_number(world) -> None:
    tenant = world.tenant()
    issued = an_invoice(tenant, state="issued", month=1)
    act_on(issued.pk, "void", actor=DORA, reason="wrong address")
    assert Invoice.objects.get(pk=issued.pk).number == issued.number
    assert an_invoice(tenant, state="issued", month=1).number == issued.number + 1


def _is_refused(statement: str, *parameters) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, parameters)
    except DatabaseError as error:
        return error.__cause__.sqlstate == "23001"  # restrict_violation
    return False


ADD_LINE = """
INSERT INTO billing_invoiceline (invoice_id, position, kind, words, model, dimension, amount_nanos,
                                 exchange_count) VALUES
"""
CLAIM = "INSERT INTO billing_invoiceexchange (exchange_id, tenant_id, invoice_id, part) VALUES"

CHANGES = (
    "UPDATE billing_invoice SET total_nanos = total_nanos + 1 WHERE id = %s",
    "UPDATE billing_invoice SET tenant_name = 'Other' WHERE id = %s",
    "UPDATE billing_invoice SET state = state WHERE id = %s",
    "UPDATE billing_invoiceline SET amount_nanos = 0 WHERE invoice_id = %s",
    "DELETE FROM billing_invoiceline WHERE invoice_id = %s",
    f"{ADD_LINE} (%s, 2, 'fee', 'x', '', '', 1, 0)",
    f"{CLAIM} (gen_random_uuid(), 1, %s, 1)",
)


@pytest.mark.parametrize("change", CHANGES)
def test_from_review_on_the_database_refuses_every_change(world, change: str) -> None:
    tenant = world.tenant()
    for number, state in enumerate(set(WAYS) - {"draft"}):
        invoice = an_invoice(tenant, state=state, month=number)
        assert _is_refused(change, invoice.pk), state


def test_an_issue_changes_nothing_but_state_and_number(world) -> None:
    invoice = an_invoice(world.tenant(), state="review")
    assert _is_refused(
        "UPDATE billing_invoice SET state = 'issued', series = 't', number = 1,"
        " issued_at = now(), total_nanos = 0 WHERE id = %s",
        invoice.pk,
    )


def test_no_invoice_and_no_line_is_removed(world) -> None:
    invoice = an_invoice(world.tenant())
    InvoiceLine.objects.filter(invoice=invoice).delete()
    assert _is_refused("DELETE FROM billing_invoice WHERE id = %s", invoice.pk)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for table in ("invoice", "invoiceline", "invoiceexchange", "planfee"):
        assert _is_refused(f"TRUNCATE billing_{table} CASCADE"), table


def test_what_is_on_an_invoice_leaves_it_only_when_it_is_void(world) -> None:
    tenant = world.tenant()
    invoice = an_invoice(tenant)
    with connection.cursor() as cursor:
        cursor.execute(f"{CLAIM} (gen_random_uuid(), %s, %s, 1)", [tenant.pk, invoice.pk])
    release = "UPDATE billing_invoiceexchange SET is_released = true WHERE invoice_id = %s"
    assert _is_refused(release, invoice.pk)
    assert _is_refused("DELETE FROM billing_invoiceexchange WHERE invoice_id = %s", invoice.pk)
    act_on(invoice.pk, "void", actor=DORA, reason="wrong")
    assert InvoiceExchange.objects.get(invoice_id=invoice.pk).is_released
    back = "UPDATE billing_invoiceexchange SET is_released = false WHERE invoice_id = %s"
    assert _is_refused(back, invoice.pk)


def test_an_exchange_is_on_one_invoice_by_an_index(world) -> None:
    tenant = world.tenant()
    one, other = an_invoice(tenant), an_invoice(tenant, month=1)
    claim = f"{CLAIM} ('0190a000-0000-7000-8000-000000000001', %s, %s, 1)"
    with connection.cursor() as cursor:
        cursor.execute(claim, [tenant.pk, one.pk])
        with pytest.raises(DatabaseError, match="unique"), transaction.atomic():
            cursor.execute(claim, [tenant.pk, other.pk])
