"""The operator's review of invoices: the queue by state, one beside exchanges and ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags
from django.views.decorators.http import require_safe

from billing.invoices.reconciling import CheckedGroup, reconcile
from billing.invoices.selectors import StateSum, history_of, in_state, number_of, state_sums
from billing.invoices.transitions import Transition, available_actions
from billing.models import CloseRun, Invoice, InvoiceState
from billing.paging import page_of
from gateway.templatetags.farthing import money2
from gateway.web.invoices.lines import LineView, line_context, views_of
from gateway.web.operator import render_staff, staff_page
from gateway.web.pager import pager_of
from keys.services import REASON_LENGTH_MAX

QUEUE_ROWS: Final = 10
CLOSES: Final = 5
STOPPED_AFTER: Final = timedelta(minutes=10)  # no tenant takes so long
WITH_TOTAL: Final = frozenset({InvoiceState.DRAFT, InvoiceState.REVIEW, InvoiceState.ISSUED})
ICONS: Final = {
    "submit": "arrow",
    "issue": "check",
    "return": "undo",
    "pay": "check",
    "void": "barred",
}


@dataclass(frozen=True, slots=True)
class Tab:
    sum: StateSum
    url: str
    is_current: bool

    @property
    def totals(self) -> list[tuple[str, int]]:
        """By currency, of the states whose money is still to be settled."""
        return list(self.sum.totals.items()) if self.sum.state in WITH_TOTAL else []


@dataclass(frozen=True, slots=True)
class Act:
    """A button: `url` is where it posts, or the page that asks where there is no way back."""

    transition: Transition
    url: str
    label: str
    icon: str


@dataclass(frozen=True, slots=True)
class GroupView:
    """Lines for which the ledger has one sum."""

    lines: tuple[LineView, ...]
    ledger_nanos: int
    difference_nanos: int


@dataclass(frozen=True, slots=True)
class CloseView:
    run: CloseRun
    now: datetime

    @property
    def state(self) -> str:
        """A state of the design system."""
        if self.run.failed_count:
            return "failed"
        if self.run.finished_at is not None:
            return "settled"
        return "open" if self.now - self.run.progress_at < STOPPED_AFTER else "paused"

    @property
    def words(self) -> str:
        if self.run.failed_count:
            return f"{self.run.failed_count:,} failed"
        return {"settled": "Done", "open": "Running", "paused": "Stopped"}[self.state]


@require_safe
@staff_page
def index(request: HttpRequest) -> HttpResponseBase:
    sums = state_sums()
    wanted = request.GET.get("state", "")
    state = InvoiceState(wanted) if wanted in InvoiceState.values else InvoiceState.REVIEW
    now = timezone.now()
    runs = CloseRun.objects.order_by("-pk")[:CLOSES]
    context = _queue(request, state, sums)
    return render_staff(
        request,
        "staff/invoices.html",
        {**context, "closes": [CloseView(run, now) for run in runs], "as_of": now},
    )


@require_safe
@staff_page
def invoice(request: HttpRequest, public_id: str) -> HttpResponseBase:
    return invoice_page(request, invoice_of(public_id))


@require_safe
@staff_page
def line(request: HttpRequest, public_id: str, position: int) -> HttpResponseBase:
    found = invoice_of(public_id)
    base = reverse("review-line", args=[public_id, position])
    context = line_context(found, position, request.GET.get("older", ""), base)
    return render_staff(request, "staff/invoice_line.html", context)


def invoice_of(public_id: str) -> Invoice:
    """Raises Http404."""
    found = Invoice.objects.filter(pk=number_of(public_id) or 0).first()
    if found is None:
        raise Http404
    return found


def invoice_page(
    request: HttpRequest,
    found: Invoice,
    *,
    reason: str = "",
    reason_error: str = "",
    refusal: str = "",
    status: int = 200,
) -> HttpResponse:
    """The queue with one invoice of it below; with what was said and refused, if anything was."""
    reconciliation = reconcile(found)
    context = {
        **_queue(request, InvoiceState(found.state), state_sums()),
        "invoice": found,
        "groups": _groups(reconciliation.groups),
        "reconciliation": reconciliation,
        "acts": acts_of(found),
        "history": history_of(found),
        "seen": found.state_at.isoformat(),
        "reason": reason,
        "reason_error": reason_error,
        "reason_max": REASON_LENGTH_MAX,
        "refusal": refusal,
        "as_of": timezone.now(),
    }
    return render_staff(request, "staff/invoices.html", context, status)


def acts_of(found: Invoice) -> list[Act]:
    """The buttons of its state; an act that makes or settles a document names the amount."""
    return [
        Act(
            transition,
            reverse("review-act", args=[found.public_id, transition.act]),
            _label(transition, found),
            ICONS[transition.act],
        )
        for transition in available_actions(found.state)
    ]


def _label(transition: Transition, found: Invoice) -> str:
    if transition.is_final:
        return f"{transition.label}…"
    if transition.target in {InvoiceState.ISSUED, InvoiceState.PAID}:
        return f"{transition.label} {plain_total(found)}"
    return transition.label


def plain_total(found: Invoice) -> str:
    """Its total in whole cents, without a currency."""
    return strip_tags(money2(found.total_nanos))


def _queue(request: HttpRequest, state: InvoiceState, sums: Sequence[StateSum]) -> dict[str, Any]:
    base = reverse("review")
    older_than = number_of(request.GET.get("older", ""))
    found = in_state(state)
    page = page_of(found, "pk", older_than=older_than, limit=QUEUE_ROWS)
    count = next(one.count for one in sums if one.state == state)
    return {
        "state": state,
        "tabs": [
            Tab(one, f"{base}?{urlencode({'state': one.state})}", is_current=one.state == state)
            for one in sums
        ],
        "rows": page.rows,
        "older": request.GET.get("older", "") if older_than is not None else "",
        "currencies": sorted({row.currency for row in page.rows}),
        "listed": f"Newest first, {len(page.rows)} of {count:,}.",
        "pager": pager_of(
            found,
            "pk",
            page,
            older_than=older_than,
            limit=QUEUE_ROWS,
            url=lambda cursor: f"{base}?{urlencode(_asked(state, cursor))}",
        ),
        "draft_count": next(one.count for one in sums if one.state == InvoiceState.DRAFT),
    }


def _asked(state: InvoiceState, cursor: int | None) -> dict[str, str]:
    return {"state": str(state), **({} if cursor is None else {"older": f"inv_{cursor}"})}


def _groups(groups: Sequence[CheckedGroup]) -> list[GroupView]:
    notes = {
        view.line.position: view.note
        for view in views_of([checked.line for group in groups for checked in group.lines])
    }
    return [
        GroupView(
            tuple(
                LineView(checked.line, notes[checked.line.position], checked.exchanges_nanos)
                for checked in group.lines
            ),
            group.ledger_nanos,
            group.difference_nanos,
        )
        for group in groups
    ]
