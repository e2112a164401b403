"""An invoice in any state, by its own acts."""

from datetime import UTC, date, datetime

from billing.invoices.acts import act_on
from billing.models import Invoice, InvoiceLine

WAYS = {
    "draft": (),
    "review": ("submit",),
    "issued": ("submit", "issue"),
    "paid": ("submit", "issue", "pay"),
    "void": ("void",),
}


def an_invoice(tenant, *, state: str = "draft", month: int = 0, nanos: int = 12_345_678_901):
    """With one line. `month` counts from January 2020."""
    first = date(2020 + month // 12, month % 12 + 1, 1)
    moment = datetime(first.year, first.month, 1, tzinfo=UTC)
    cent = 10**7
    invoice = Invoice.objects.create(
        tenant=tenant,
        tenant_name=tenant.name,
        currency="USD",
        month=first,
        time_zone="UTC",
        starts_at=moment,
        ends_at=moment,
        open_from=moment,
        net_nanos=nanos,
        total_nanos=(nanos + cent // 2) // cent * cent,
    )
    InvoiceLine.objects.create(
        invoice=invoice, position=1, kind="correction", words="made", amount_nanos=nanos
    )
    for act in WAYS[state]:
        act_on(invoice.pk, act, actor="dora@example.test", reason=f"to {act}")
    invoice.refresh_from_db()
    return invoice
