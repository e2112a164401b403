"""One request with all that explains it: charge, timing, four legs, and how to repeat it."""

from decimal import Decimal
from http import HTTPStatus
from typing import Any

import orjson
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from billing.ids import exchange_id_of
from billing.models import Exchange
from billing.money import BASIS_POINTS
from billing.rating import PER_REQUEST
from gateway.api.shapes import request_shape
from gateway.exchanges.charge import ChargeView, PriceLine
from gateway.exchanges.selectors import (
    AT_ESTIMATE,
    ExchangeRow,
    ExchangeView,
    exchange_row,
    exchange_view,
)
from gateway.web.place import Place, tenant_page
from gateway.web.requests.notes import note_of
from gateway.web.requests.rows import RequestLine
from gateway.web.requests.tabs import tabs_of
from gateway.web.requests.timing import first_token_ms, steps_of
from gateway.web.snippets import curl

CURL_CHARS_MAX = 20_000
LINE_WORDS = {
    "input": "Input",
    "cached_input": "Cached input",
    "cache_write": "Cache write",
    "image_input": "Image input",
    "audio_input": "Audio input",
    "output": "Output",
    "reasoning": "Reasoning",
    "audio_output": "Audio output",
    PER_REQUEST: "Per request",
}


@require_safe
@tenant_page
def page(request: HttpRequest, place: Place, request_id: str) -> HttpResponseBase:
    exchange_id = exchange_id_of(request_id)
    view = None if exchange_id is None else exchange_view(place.tenant.pk, exchange_id)
    if view is None:
        raise Http404
    if view.exchange.is_test != place.is_test:
        return _other_mode(request, view)
    return render(request, "tenant/request.html", _context(request, view))


@require_safe
@tenant_page
def as_json(_request: HttpRequest, place: Place, request_id: str) -> HttpResponseBase:
    """The answer of GET /v1/requests/{id}, for a reader who is signed in."""
    exchange_id = exchange_id_of(request_id)
    row = None if exchange_id is None else exchange_row(place.tenant.pk, exchange_id)
    if row is None or row.exchange.is_test != place.is_test:
        raise Http404
    text = orjson.dumps(request_shape(row), option=orjson.OPT_INDENT_2)
    return HttpResponse(text, content_type="application/json")


def _other_mode(request: HttpRequest, view: ExchangeRow) -> HttpResponse:
    """Test and live never mix: the page is not shown, but how to get to it is."""
    context = {"id": view.public_id, "is_test": view.exchange.is_test}
    return render(request, "tenant/request_elsewhere.html", context, status=HTTPStatus.NOT_FOUND)


def _context(request: HttpRequest, view: ExchangeView) -> dict[str, Any]:
    charge = view.charge
    exchange = view.exchange
    line = RequestLine(view)
    return {
        "view": view,
        "line": line,
        "pill_words": "Settled at estimate" if view.status == AT_ESTIMATE else line.state_words,
        "page_note": note_of(view),
        "charge": charge,
        "price_lines": [] if charge is None else [(_name(part), part) for part in charge.lines],
        "plan_words": _plan_words(exchange),
        "hold_words": _hold_words(view),
        "minus_charge_nanos": None if charge is None else -charge.charge_nanos,
        "minus_shortfall_nanos": None if charge is None else -charge.shortfall_nanos,
        "beyond_nanos": _beyond_nanos(charge, exchange.hold_nanos),
        "steps": steps_of(view),
        "first_token_ms": first_token_ms(view),
        "tabs": tabs_of(view.legs, request.GET.dict()),
        "curl": _curl(request, view),
        "answer": _answer(view),
        "json_url": reverse("requests-json", args=[view.public_id]),
    }


def _name(line: PriceLine) -> str:
    return LINE_WORDS.get(line.dimension, line.dimension)


def _plan_words(exchange: Exchange) -> str:
    """How the tenant's plan changed the list price; empty where it did not."""
    price, terms = exchange.price, exchange.terms
    if price is None or price.plan_id is not None or terms is None:
        return ""
    if terms.price_factor_bps == BASIS_POINTS:
        return ""
    factor = (Decimal(terms.price_factor_bps) / BASIS_POINTS).normalize()
    return f"× {factor:f} by the plan {terms.plan.name}"


def _hold_words(view: ExchangeView) -> str:
    """A hold is taken at the start, from each account that pays, and more where that ran out."""
    pieces = sum(entry.phase == "held" for entry in view.entries)
    return "Held at the start" if pieces <= 1 else "Held in all"


def _beyond_nanos(charge: ChargeView | None, hold_nanos: int) -> int:
    """What the charge took beyond its hold, from what the wallet had left over."""
    return 0 if charge is None else max(charge.charge_nanos - hold_nanos, 0)


def _answer(view: ExchangeView) -> str:
    """Status and mode: `200, stream`."""
    status = view.exchange.status_code
    mode = "stream" if view.exchange.is_stream else "whole"
    return mode if status is None else f"{status}, {mode}"


def _curl(request: HttpRequest, view: ExchangeView) -> str | None:
    """None where the request is not stored whole, or too long for a command."""
    leg = view.legs.client_request
    if leg.raw is None or leg.is_raw_cut or len(leg.raw) > CURL_CHARS_MAX:
        return None
    return curl(request.build_absolute_uri("/v1"), leg.raw)
