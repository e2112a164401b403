"""Acts on an invoice: each a row of the table of transitions, with its actor and its reason."""

from datetime import datetime
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from billing.errors import BadInvoiceAct, InvoiceMoved
from billing.invoices.transitions import BY_ACT, Transition
from billing.locks import lock_invoice
from billing.models import Invoice, InvoiceState
from billing.money import text_from_nanos
from keys.services import REASON_LENGTH_MAX, record

# The series' row stays locked until the issue is committed or undone: no number is left out.
_NEXT_NUMBER: Final = """
INSERT INTO billing_invoiceseries AS s (name, last_number) VALUES (%s, 1)
ON CONFLICT (name) DO UPDATE SET last_number = s.last_number + 1
RETURNING last_number
"""

_RELEASE: Final = """
UPDATE billing_invoiceexchange SET is_released = true WHERE invoice_id = %s AND NOT is_released
"""


def act_on(
    invoice_id: int, act: str, *, actor: str, reason: str, seen_at: datetime | None = None
) -> Invoice:
    """Move the invoice along; `seen_at` is the `state_at` of what the actor has looked at.

    Raises Invoice.DoesNotExist; InvoiceMoved where its state does not allow the act, or is another
    than was seen; BadInvoiceAct without a reason. Then nothing changed.
    """
    reason = reason.strip()
    if not reason or len(reason) > REASON_LENGTH_MAX:
        raise BadInvoiceAct(f"Give a reason of 1 to {REASON_LENGTH_MAX} characters.")
    transition = BY_ACT.get(act)
    if transition is None:
        raise BadInvoiceAct("There is no such act.")
    with transaction.atomic():
        invoice = lock_invoice(invoice_id)
        if invoice.state not in transition.sources:
            raise InvoiceMoved(f"The invoice is {invoice.get_state_display().lower()} already.")
        if seen_at is not None and seen_at != invoice.state_at:
            raise InvoiceMoved("Somebody acted on the invoice since you looked at it.")
        _move(invoice, transition)
        record(
            transition.action,
            tenant_id=invoice.tenant_id,
            actor=actor,
            subject=invoice.public_id,
            reason=reason,
            detail={
                "number": invoice.number_text,
                "total": text_from_nanos(invoice.total_nanos),
                "currency": invoice.currency,
            },
        )
    return invoice


def _move(invoice: Invoice, transition: Transition) -> None:
    invoice.state, invoice.state_at = transition.target, timezone.now()
    changed = ["state", "state_at"]
    if transition.target == InvoiceState.ISSUED:
        invoice.issued_at = invoice.state_at
        invoice.series = f"{invoice.issued_at:%Y}"
        with connection.cursor() as cursor:
            cursor.execute(_NEXT_NUMBER, [invoice.series])
            (invoice.number,) = cursor.fetchone()
        changed += ["issued_at", "series", "number"]
    invoice.save(update_fields=changed)
    if transition.target == InvoiceState.VOID:
        with connection.cursor() as cursor:
            cursor.execute(_RELEASE, [invoice.pk])
