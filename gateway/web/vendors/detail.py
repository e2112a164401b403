"""One vendor: its standing, its models' last reports, the checks so far, and the trail of acts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from billing.paging import page_of
from gateway.exchanges.vendor_health import HEALTH_PERIOD
from gateway.models import Vendor, VendorCheck
from gateway.qualification.acts import VendorAct, available_acts
from gateway.qualification.bounds import DEFAULT_BOUNDS
from gateway.web.operator import render_staff, staff_page
from gateway.web.pager import pager_of
from gateway.web.vendors.cards import VERDICTS, ModelLine, cards_of
from gateway.web.vendors.list import key_of
from gateway.web.vendors.report import report_view
from gateway.web.vendors.trail import trail_of

CHECKS = 10
ICONS = {"override": "check", "enable": "play", "withdraw": "undo", "disable": "barred"}


@dataclass(frozen=True, slots=True)
class Button:
    """Leads to the page that asks."""

    act: VendorAct
    icon: str


@require_safe
@staff_page
def vendor(request: HttpRequest, name: str) -> HttpResponseBase:
    return vendor_page(request, vendor_of(name))


@require_safe
@staff_page
def check(request: HttpRequest, name: str, check_id: int) -> HttpResponseBase:
    """One run of the past, with its evidence."""
    found = VendorCheck.objects.filter(vendor__name=name, pk=check_id)
    run = found.select_related("vendor").first()
    if run is None:
        raise Http404
    context = {"name": name, "report": report_view(run)}
    return render_staff(request, "staff/vendor_check.html", context)


def vendor_of(name: str) -> Vendor:
    """Raises Http404."""
    found = Vendor.objects.filter(name=name).first()
    if found is None:
        raise Http404
    return found


def vendor_page(
    request: HttpRequest, found: Vendor, *, refusal: str = "", status: int = 200
) -> HttpResponse:
    """The vendor as it stands, with what was refused, if anything was."""
    now = timezone.now()
    (card,) = cards_of([found], now)
    if request.headers.get("hx-request") and not card.is_waiting:
        return HttpResponseClientRefresh()  # what was waited for has come
    line = _chosen(card.models, request.GET.get("model", ""))
    context = {
        "card": card,
        "acts": [Button(act, ICONS[act.name]) for act in available_acts(found)],
        "refusal": refusal,
        "run_tokens": DEFAULT_BOUNDS.tokens,
        "line": line,
        "report": report_view(line.check) if line is not None and line.check else None,
        "trail": trail_of(found),
        "health_hours": HEALTH_PERIOD.seconds // 3_600,
        "as_of": now,
        **_checks(request, found, line),
    }
    return render_staff(request, "staff/vendor.html", context, status)


def _chosen(lines: Sequence[ModelLine], asked: str) -> ModelLine | None:
    """The one that was asked for, or else the first in use that has not passed."""
    named = [line for line in lines if line.name == asked]
    open_ones = [line for line in lines if line.public_names and line.state != "passed"]
    return next(iter([*named, *open_ones, *lines]), None)


def _checks(request: HttpRequest, found: Vendor, line: ModelLine | None) -> dict[str, Any]:
    """A page of the vendor's runs, of all of its models and addresses."""
    runs = VendorCheck.objects.filter(vendor=found).defer("report")
    older_than = key_of(request.GET.get("older", ""))
    page = page_of(runs, "pk", older_than=older_than, limit=CHECKS)
    base = reverse("vendors-vendor", args=[found.name])

    def url(cursor: int | None) -> str:
        asked = {} if line is None else {"model": line.name}
        asked |= {} if cursor is None else {"older": str(cursor)}
        return f"{base}?{urlencode(asked)}#checks"

    return {
        "runs": [(run, VERDICTS[run.passed]) for run in page.rows],
        "listed": f"Newest first, {len(page.rows)} of {runs.count():,}.",
        "pager": pager_of(runs, "pk", page, older_than=older_than, limit=CHECKS, url=url),
    }
