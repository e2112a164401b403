"""A tenant's invoices: those that were issued, with the requests behind each line."""

from functools import wraps
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from billing.invoices.selectors import number_of, shown_to
from billing.models import Invoice, InvoiceLine
from billing.paging import page_of
from gateway.exchanges.selectors import PAGE_ROWS
from gateway.web.invoices.lines import line_context, views_of
from gateway.web.pager import pager_of
from gateway.web.place import Place, View, tenant_page


def invoices_page(view: View) -> View:
    """Allow roles that see invoices only."""

    @wraps(view)
    def allowed(request: HttpRequest, place: Place, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not place.may_see_invoices:
            raise PermissionDenied
        return view(request, place, *args, **kwargs)

    return tenant_page(allowed)


@require_safe
@invoices_page
def index(request: HttpRequest, place: Place) -> HttpResponseBase:
    found = shown_to(place.tenant.pk)
    older_than = number_of(request.GET.get("older", ""))
    page = page_of(found, "pk", older_than=older_than, limit=PAGE_ROWS)
    pager = pager_of(found, "pk", page, older_than=older_than, limit=PAGE_ROWS, url=_list_url)
    context = {
        "invoices": page.rows,
        "pager": pager,
        "listed": f"Newest first, {len(page.rows)} of {found.count():,}.",
        "as_of": timezone.now(),
    }
    return render(request, "tenant/invoices.html", context)


@require_safe
@invoices_page
def invoice(request: HttpRequest, place: Place, public_id: str) -> HttpResponseBase:
    found = _own(place, public_id)
    lines = InvoiceLine.objects.filter(invoice=found).select_related("price", "terms__plan")
    views = views_of(list(lines.order_by("position")))
    context = {
        "invoice": found,
        "lines": views,
        "minus_carried_nanos": -found.carried_out_nanos,
    }
    return render(request, "tenant/invoice.html", context)


@require_safe
@invoices_page
def line(request: HttpRequest, place: Place, public_id: str, position: int) -> HttpResponseBase:
    found = _own(place, public_id)
    base = reverse("invoices-line", args=[public_id, position])
    context = line_context(found, position, request.GET.get("older", ""), base)
    return render(request, "tenant/invoice_line.html", context)


def _own(place: Place, public_id: str) -> Invoice:
    """Raises Http404 for another tenant's, and for what is not issued or no longer stands."""
    found = shown_to(place.tenant.pk).filter(pk=number_of(public_id) or 0).first()
    if found is None:
        raise Http404
    return found


def _list_url(older_than: int | None) -> str:
    base = reverse("invoices")
    return base if older_than is None else f"{base}?older=inv_{older_than}"
