"""Acts on a vendor: each asks first, says what follows, and is done with a reason or not at all."""

from functools import partial
from http import HTTPStatus
from urllib.parse import urlencode

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from gateway.models import Vendor
from gateway.qualification.acts import BY_NAME, VendorAct, VendorMovedError, act_on
from gateway.qualification.asking import CannotAskError, ask
from gateway.qualification.standing import REASON_CHARACTERS_MAX, BadReasonError
from gateway.tasks import check_vendor, tell
from gateway.web.operator import actor_of, render_staff, staff_act
from gateway.web.vendors.consequences import consequence_of
from gateway.web.vendors.detail import vendor_of, vendor_page

OPENING = frozenset({"enable", "override"})  # the others take it out
QUESTIONS = {
    "override": ("Let {} in although it is not qualified?", "Let {} in"),
    "enable": ("Enable vendor {}?", "Enable {}"),
    "withdraw": ("Withdraw the override of vendor {}?", "Withdraw it from {}"),
    "disable": ("Disable vendor {}?", "Disable {}"),
}


@require_http_methods(["GET", "HEAD", "POST"])
@staff_act
def act(request: HttpRequest, name: str, act: str) -> HttpResponseBase:
    """GET asks. POST acts, after who acts has shown again who it is."""
    found, known = vendor_of(name), BY_NAME.get(act)
    if known is None:
        raise Http404
    if request.method != "POST":
        return _ask(request, found, known) if known.is_open_to(found) else _back(found)
    try:
        act_on(found, known, actor=actor_of(request), reason=request.POST.get("reason", ""))
    except VendorMovedError as refusal:
        found.refresh_from_db()
        return vendor_page(request, found, refusal=str(refusal), status=HTTPStatus.CONFLICT)
    except BadReasonError as error:
        return _ask(request, found, known, str(error))
    return _back(found)


@require_POST
@staff_act
def check_now(request: HttpRequest, name: str) -> HttpResponseBase:
    """Queue a check of one model; the page shows what becomes of it."""
    found, model = vendor_of(name), request.POST.get("model", "")
    try:
        job = ask(found, model, actor=actor_of(request))
    except CannotAskError as refusal:
        return vendor_page(request, found, refusal=str(refusal), status=HTTPStatus.CONFLICT)
    transaction.on_commit(partial(tell, check_vendor, job.pk))
    page = reverse("vendors-vendor", args=[found.name])
    return redirect(f"{page}?{urlencode({'model': model})}#models")


def _back(found: Vendor) -> HttpResponseBase:
    return redirect("vendors-vendor", found.name)


def _ask(
    request: HttpRequest, found: Vendor, act: VendorAct, reason_error: str = ""
) -> HttpResponseBase:
    question, button = QUESTIONS[act.name]
    context = {
        "name": found.name,
        "act_name": act.name,
        "label": act.label,
        "question": question.format(found.name),
        "act": button.format(found.name),
        "is_mild": act.name in OPENING,
        "consequence": consequence_of(act.name, found),
        "reason": request.POST.get("reason", ""),
        "reason_error": reason_error,
        "reason_max": REASON_CHARACTERS_MAX,
    }
    status = HTTPStatus.UNPROCESSABLE_ENTITY if reason_error else HTTPStatus.OK
    return render_staff(request, "staff/vendor_act.html", context, status)
