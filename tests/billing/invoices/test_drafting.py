"""What is put on one draft beside its exchanges."""

from datetime import timedelta

import pytest
import time_machine

from billing.adjustments import adjust, refund
from billing.invoices.acts import act_on
from billing.invoices.drafting import carried_nanos, draft_invoice
from billing.invoices.reconciling import reconcile
from billing.models import Invoice, Payment
from keys.models import AuditEvent
from tests.billing.acts import UNIT
from tests.billing.invoices.made import an_invoice
from tests.billing.month import last_month, utc_month

pytestmark = pytest.mark.django_db
MONTH = utc_month(last_month())
HOUR = timedelta(hours=1)


def draft(tenant) -> Invoice | None:
    return draft_invoice(tenant, "USD", MONTH, actor="tests")


def lines(invoice: Invoice) -> list[tuple[str, int]]:
    return list(invoice.lines.order_by("position").values_list("kind", "amount_nanos"))


def test_corrections_of_the_month_are_lines_and_refunds_are_not(world) -> None:
    tenant = world.tenant()
    with time_machine.travel(MONTH.ends_at - HOUR):
        adjust(tenant, -3 * UNIT, actor="dora", reason="a price too low")
        given = adjust(tenant, UNIT, actor="dora", reason="an outage")
        refund(Payment.objects.get(tenant=tenant), UNIT, actor="dora", reason="asked for")
    with time_machine.travel(MONTH.ends_at):
        adjust(tenant, 5, actor="dora", reason="of the next month")
    invoice = draft(tenant)
    assert lines(invoice) == [("correction", 3 * UNIT), ("correction", -UNIT)]
    assert invoice.lines.last().words == f"Correction {given}: an outage"
    assert invoice.total_nanos == 2 * UNIT
    assert reconcile(invoice).difference_nanos == 0


def test_a_document_is_not_below_zero_and_its_sum_is_carried_on(world) -> None:
    tenant = world.tenant()
    with time_machine.travel(MONTH.ends_at - HOUR):
        adjust(tenant, UNIT, actor="dora", reason="an outage")
    invoice = draft(tenant)
    assert (invoice.total_nanos, invoice.carried_out_nanos) == (0, -UNIT)
    assert carried_nanos(tenant.pk, "USD") == -UNIT


def test_the_remainder_of_the_invoices_before_is_a_line(world) -> None:
    tenant = world.tenant()
    earlier = an_invoice(tenant, state="issued", nanos=12_344_000_001)
    assert earlier.carried_out_nanos == 4_000_001
    with time_machine.travel(MONTH.ends_at - HOUR):
        adjust(tenant, -1_000_000, actor="dora", reason="a price too low")
    invoice = draft(tenant)
    assert lines(invoice) == [("correction", 1_000_000), ("remainder", 4_000_001)]
    assert (invoice.total_nanos, invoice.carried_out_nanos) == (10_000_000, -4_999_999)
    act_on(earlier.pk, "void", actor="dora", reason="never sent")
    assert carried_nanos(tenant.pk, "USD") == 1_000_000 - 10_000_000


def test_a_remainder_alone_makes_no_document(world) -> None:
    tenant = world.tenant()
    an_invoice(tenant, state="issued", nanos=12_344_000_001)
    assert draft(tenant) is None
    assert Invoice.objects.filter(tenant=tenant).count() == 1


def test_a_draft_says_who_and_which_plan_and_leaves_its_trail(world) -> None:
    tenant = world.tenant("Acme")
    with time_machine.travel(MONTH.ends_at - HOUR):
        adjust(tenant, -UNIT, actor="dora", reason="a price too low")
    invoice = draft(tenant)
    assert (invoice.tenant_name, invoice.plan_name, invoice.number_text) == ("Acme", "", "")
    assert (invoice.starts_at, invoice.ends_at) == (MONTH.starts_at, MONTH.ends_at)
    event = AuditEvent.objects.get(subject=invoice.public_id)
    assert (event.action, event.actor) == ("invoice:drafted", "tests")
    assert event.detail["total"] == "1.000000000"
    assert draft(tenant) is None
