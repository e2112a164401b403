"""Questions about invoices: the operator's queue, a tenant's own, what stands behind a line."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum

from billing.invoices.transitions import TRANSITIONS
from billing.models import (
    Charge,
    Invoice,
    InvoiceExchange,
    InvoiceLine,
    InvoiceState,
    LineKind,
    Phase,
    Transfer,
)
from billing.models.invoices import PUBLIC_PREFIX
from keys.models import AuditAction, AuditEvent

TENANT_STATES: Final = (InvoiceState.ISSUED, InvoiceState.PAID)
DONE: Final = {
    AuditAction.INVOICE_DRAFTED: "Draft made",
    **{transition.action: transition.done for transition in TRANSITIONS},
}
ID_DIGITS_MAX: Final = 18


@dataclass(frozen=True, slots=True)
class StateSum:
    """The invoices in one state; `totals` are nanos by currency."""

    state: InvoiceState
    count: int
    totals: dict[str, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """One act of an invoice's history."""

    at: datetime
    words: str
    actor: str
    reason: str


def state_sums() -> list[StateSum]:
    """Every state in the order of the table, also those that no invoice is in."""
    rows = (
        Invoice.objects.values("state", "currency")
        .annotate(count=Count("pk"), nanos=Sum("total_nanos"))
        .order_by("currency")
    )
    found = {state: [row for row in rows if row["state"] == state] for state in InvoiceState}
    return [
        StateSum(
            state,
            sum(row["count"] for row in of_state),
            {row["currency"]: int(row["nanos"]) for row in of_state},
        )
        for state, of_state in found.items()
    ]


def in_state(state: InvoiceState) -> QuerySet[Invoice]:
    return Invoice.objects.filter(state=state)


def shown_to(tenant_id: int) -> QuerySet[Invoice]:
    """What a tenant may see of its own: nothing that the operator still looks at, or took back."""
    return Invoice.objects.filter(tenant_id=tenant_id, state__in=TENANT_STATES)


def number_of(public_id: str) -> int | None:
    """The key that `inv_7` names; None where it names none."""
    digits = public_id.removeprefix(PUBLIC_PREFIX)
    is_name = digits != public_id and digits.isascii() and digits.isdigit()
    return int(digits) if is_name and len(digits) <= ID_DIGITS_MAX else None


def exchanges_behind(line: InvoiceLine) -> QuerySet[InvoiceExchange]:
    """The `line.exchange_count` exchanges that its amount comes from; none for a fee."""
    invoice = line.invoice
    listed = InvoiceExchange.objects.filter(invoice_id=invoice.pk, tenant_id=invoice.tenant_id)
    if line.credit is not None:
        paid = Transfer.objects.filter(
            link=OuterRef("exchange_id"),
            tenant_id=invoice.tenant_id,
            phase=Phase.POSTED,
            debit_account_id=line.credit.account_id,
        )
        return listed.filter(Exists(paid))
    if line.part is None:
        return listed.none()
    listed = listed.filter(part=line.part)
    if line.kind != LineKind.USAGE:
        return listed
    counted = Charge.objects.filter(
        Q(**{f"{line.dimension}_tokens__gt": 0}),
        exchange_id=OuterRef("exchange_id"),
        tenant_id=invoice.tenant_id,
    )
    return listed.filter(Exists(counted))


def paid_by_credit(line: InvoiceLine, exchange_ids: Iterable[UUID]) -> dict[UUID, int]:
    """Nanos that the line's credit paid for each of these exchanges; empty without a credit."""
    if line.credit is None:
        return {}
    paid = Transfer.objects.filter(
        link__in=list(exchange_ids),
        tenant_id=line.invoice.tenant_id,
        phase=Phase.POSTED,
        debit_account_id=line.credit.account_id,
    )
    return dict(paid.values_list("link", "amount_nanos"))


def history_of(invoice: Invoice) -> list[Entry]:
    """Who did what to it and why, the first first."""
    events = AuditEvent.objects.filter(tenant_id=invoice.tenant_id, subject=invoice.public_id)
    return [
        Entry(event.at, _words(event), event.actor, event.reason) for event in events.order_by("pk")
    ]


def _words(event: AuditEvent) -> str:
    action = AuditAction(event.action)
    words = DONE.get(action, str(action.label))
    number = event.detail.get("number")
    return f"{words} as {number}" if action == AuditAction.INVOICE_ISSUED and number else words
