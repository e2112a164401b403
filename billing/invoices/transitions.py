"""The states of an invoice and the acts between them: the one table that services and pages read.

The trigger on the table of invoices refuses every other move; a test holds the two together.
"""

from dataclasses import dataclass
from typing import Final

from billing.models import InvoiceState
from keys.models import AuditAction


@dataclass(frozen=True, slots=True)
class Transition:
    """`act` is its name in addresses; `label` is the button's and `done` the history's words.

    `is_final` has no way back.
    """

    act: str
    sources: tuple[InvoiceState, ...]
    target: InvoiceState
    label: str
    done: str
    action: AuditAction
    is_final: bool = False


TRANSITIONS: Final = (
    Transition(
        "submit",
        (InvoiceState.DRAFT,),
        InvoiceState.REVIEW,
        "Send to review",
        "Sent to review",
        AuditAction.INVOICE_SUBMITTED,
    ),
    Transition(
        "issue",
        (InvoiceState.REVIEW,),
        InvoiceState.ISSUED,
        "Approve and issue",
        "Issued",
        AuditAction.INVOICE_ISSUED,
    ),
    Transition(
        "return",
        (InvoiceState.REVIEW,),
        InvoiceState.DRAFT,
        "Return to draft",
        "Returned to draft",
        AuditAction.INVOICE_RETURNED,
    ),
    Transition(
        "pay",
        (InvoiceState.ISSUED,),
        InvoiceState.PAID,
        "Mark as paid",
        "Marked as paid",
        AuditAction.INVOICE_PAID,
    ),
    Transition(
        "void",
        (InvoiceState.DRAFT, InvoiceState.REVIEW, InvoiceState.ISSUED),
        InvoiceState.VOID,
        "Void",
        "Voided",
        AuditAction.INVOICE_VOIDED,
        is_final=True,
    ),
)
BY_ACT: Final = {transition.act: transition for transition in TRANSITIONS}


def available_actions(state: str) -> tuple[Transition, ...]:
    """What may be done with an invoice in this state, in the order of its buttons."""
    return tuple(transition for transition in TRANSITIONS if state in transition.sources)
