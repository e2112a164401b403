"""Acts on an invoice, by the table of transitions: each with a reason, once, or not at all."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from billing.errors import BadInvoiceAct, InvoiceMoved
from billing.invoices.acts import act_on
from billing.invoices.transitions import BY_ACT, Transition
from billing.models import Invoice
from gateway.web.invoices.review import invoice_of, invoice_page
from gateway.web.operator import actor_of, render_staff, staff_act
from keys.services import REASON_LENGTH_MAX

NEVER: Final = datetime.min.replace(tzinfo=UTC)  # no invoice was moved then


@require_http_methods(["GET", "HEAD", "POST"])
@staff_act
def act(request: HttpRequest, public_id: str, act: str) -> HttpResponseBase:
    """GET asks, for what has no way back. POST acts, after who acts has shown again who it is."""
    found, transition = invoice_of(public_id), BY_ACT.get(act)
    if transition is None:
        raise Http404
    if request.method != "POST":
        if not transition.is_final or found.state not in transition.sources:
            return redirect("review-invoice", public_id)
        return _ask(request, found, transition)
    if transition.is_final and request.POST.get("name", "").strip() != name_of(found):
        return _ask(request, found, transition, f"Enter it exactly: {name_of(found)}")
    return _act(request, found, transition)


def name_of(found: Invoice) -> str:
    """What has to be typed before it is voided."""
    return found.number_text or found.public_id


def _act(request: HttpRequest, found: Invoice, transition: Transition) -> HttpResponseBase:
    reason = request.POST.get("reason", "")
    seen_at = _moment(request.POST.get("seen", ""))
    try:
        act_on(found.pk, transition.act, actor=actor_of(request), reason=reason, seen_at=seen_at)
    except InvoiceMoved as refusal:
        found.refresh_from_db()
        return invoice_page(
            request, found, reason=reason, refusal=str(refusal), status=HTTPStatus.CONFLICT
        )
    except BadInvoiceAct as refusal:
        if transition.is_final:
            return _ask(request, found, transition, reason_error=str(refusal))
        return invoice_page(
            request,
            found,
            reason=reason,
            reason_error=str(refusal),
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
        )
    return redirect(f"{reverse('review-invoice', args=[found.public_id])}#invoice")


def _ask(
    request: HttpRequest,
    found: Invoice,
    transition: Transition,
    error: str = "",
    *,
    reason_error: str = "",
) -> HttpResponseBase:
    is_refused = bool(error or reason_error)
    context = {
        "invoice": found,
        "transition": transition,
        "consequence": _consequence(found),
        "name": name_of(found),
        "error": error,
        "reason": request.POST.get("reason", ""),
        "reason_error": reason_error,
        "reason_max": REASON_LENGTH_MAX,
        "seen": request.POST.get("seen") or found.state_at.isoformat(),
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if is_refused else HTTPStatus.OK
    return render_staff(request, "staff/invoice_void.html", context, status)


def _consequence(found: Invoice) -> str:
    requests = f"{found.exchange_count:,} request{'' if found.exchange_count == 1 else 's'}"
    number = f" The number {found.number_text} stays taken." if found.number_text else ""
    return (
        f"Its {requests}, fees and corrections are free for the next draft of {found.tenant_name}."
        f"{number} No money moves. This cannot be undone."
    )


def _moment(text: str) -> datetime:
    """NEVER where it is not a moment: then nothing that was seen is acted on."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return NEVER
    return moment if moment.tzinfo is not None else NEVER
