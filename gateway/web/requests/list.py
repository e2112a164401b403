"""The list of requests: what the address asks for, in a chart, in rows, and as CSV."""

from collections.abc import Sequence
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from billing.ids import exchange_id_of, request_id
from gateway.exchanges.selectors import (
    ExchangeFilters,
    ExchangePage,
    exchange_row,
    filtered,
    list_exchanges,
    newer_cursor,
)
from gateway.exchanges.tallies import Bucket, Tally, histogram
from gateway.models import Model
from gateway.web.place import Place, tenant_page
from gateway.web.requests.chart import chart_of
from gateway.web.requests.export import awaited, csv_pages
from gateway.web.requests.filters import Asked, menus, period_choices
from gateway.web.requests.rows import RequestLine
from gateway.web.snippets import ANY_MODEL, snippets
from keys.models import ApiKey
from keys.selectors import keys_of

MENU_KEYS = 200
JUMP_CHARS = 64


@require_safe
@tenant_page
def index(request: HttpRequest, place: Place) -> HttpResponseBase:
    wanted = request.GET.get("id", "").strip()[:JUMP_CHARS]
    found = _jump(place, wanted)
    if found is not None:
        return redirect("requests-request", found)
    return render(request, "tenant/requests.html", _context(request, place, wanted))


@require_safe
@tenant_page
def export(request: HttpRequest, place: Place) -> HttpResponseBase:
    now = timezone.now()
    filters = Asked.of(request.GET.dict(), now).filters(is_test=place.is_test)
    pages = csv_pages(place.tenant.pk, filters)
    response = StreamingHttpResponse(
        awaited(pages) if isinstance(request, ASGIRequest) else pages, content_type="text/csv"
    )
    name = f"farthing-{place.tenant.slug}-{place.mode}-{now:%Y%m%dT%H%M%SZ}.csv"
    response["content-disposition"] = f'attachment; filename="{name}"'
    return response


def _context(request: HttpRequest, place: Place, wanted: str) -> dict[str, object]:
    now = timezone.now()
    base = reverse("requests")
    asked = Asked.of(request.GET.dict(), now)
    filters = asked.filters(is_test=place.is_test)
    older_than = exchange_id_of(request.GET.get("older", ""))
    page = list_exchanges(place.tenant.pk, filters, older_than=older_than)
    chart = chart_of(asked.period, _buckets(place, filters, asked.period.step_s))
    return {
        "asked": asked,
        "wanted": wanted,
        "lines": [RequestLine(row) for row in page.rows],
        "chart": chart,
        "listed": _listed(len(page.rows), chart.total),
        "period_words": asked.period.words(now),
        "is_one_day": asked.period.since.date() == asked.period.last_day,
        "periods": period_choices(asked, base, now),
        "menus": menus(asked, base, models=_models(asked), keys=_keys(place)),
        "errors_url": asked.but(errors_only=not asked.errors_only).url(base),
        "estimates_url": asked.but(estimates_only=not asked.estimates_only).url(base),
        "kept": {k: v for k, v in asked.parameters().items() if k not in _PERIOD_FIELDS},
        "clear_url": asked.cleared().url(base),
        "refresh_url": asked.url(base),
        "csv_url": asked.url(reverse("requests-csv")),
        "older_url": asked.url(base, older=request_id(page.older)) if page.older else "",
        "newer_url": _newer_url(place, asked, filters, page, older_than),
        "as_of": now,
        "first": None if page.rows or older_than else _first_steps(request, place),
    }


_PERIOD_FIELDS = frozenset({"period", "since", "until"})


def _buckets(place: Place, filters: ExchangeFilters, step_s: int) -> list[Bucket]:
    """Return none for a key that the tenant does not have: then there is no query to count."""
    try:
        return histogram(place.tenant.pk, filters, step_s=step_s)
    except EmptyResultSet:
        return []


def _listed(shown: int, total: Tally) -> str:
    more = "more than " if total.is_capped else ""
    return (
        f"Newest first, {shown} of {more}{total.total:,}. "
        "Nothing is left out: refused and failed requests are listed at zero."
    )


def _jump(place: Place, wanted: str) -> str | None:
    """The request that an id names, be it a request's or a completion's, if it is this tenant's."""
    exchange_id = exchange_id_of(wanted)
    if exchange_id is None or exchange_row(place.tenant.pk, exchange_id) is None:
        return None
    return request_id(exchange_id)


def _newer_url(
    place: Place,
    asked: Asked,
    filters: ExchangeFilters,
    page: ExchangePage,
    older_than: UUID | None,
) -> str:
    """Empty on the first page."""
    base = reverse("requests")
    if older_than is None:
        return ""
    if not page.rows:
        return asked.url(base)
    first = page.rows[0].exchange.id
    cursor = newer_cursor(place.tenant.pk, filters, newer_than=first)
    return asked.url(base) if cursor is None else asked.url(base, older=request_id(cursor))


def _models(asked: Asked) -> dict[str, str]:
    names = Model.objects.filter(is_active=True).order_by("name").values_list("name", flat=True)
    words = {name: name for name in names}
    return {**words, asked.model: asked.model} if asked.model else words


def _keys(place: Place) -> dict[str, str]:
    keys: Sequence[ApiKey] = [
        key
        for is_revoked in (False, True)
        for key in keys_of(place.tenant, place.key_kinds, is_revoked=is_revoked)[:MENU_KEYS]
    ]
    return {key.public_id: f"{key.name}{' (revoked)' if key.revoked_at else ''}" for key in keys}


def _first_steps(request: HttpRequest, place: Place) -> dict[str, object] | None:
    """How to send the first request; None where there has been one."""
    if filtered(place.tenant.pk, ExchangeFilters(is_test=place.is_test)).exists():
        return None
    key = keys_of(place.tenant, place.key_kinds).first()
    model = key.allowed_models[0] if key is not None and key.allowed_models else ANY_MODEL
    return {"key": key, "curl": snippets(request.build_absolute_uri("/v1"), model).curl}
