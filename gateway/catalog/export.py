"""Writing down what the database says, as a file that can be applied again with no changes."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import yaml
from django.utils import timezone

from billing.models import Plan
from billing.money import BASIS_POINTS
from gateway.catalog.apply import ROUTE_FIELDS
from gateway.catalog.diff import moment_text, percent_text, price_text, seconds_text
from gateway.catalog.entries import KEPT_CREDENTIAL
from gateway.catalog.nodes import without_environment
from gateway.catalog.plans import TermsFigures, stored_terms
from gateway.catalog.prices import Kind, PriceFigures, stored_versions
from gateway.catalog.versions import Version, current_and_planned
from gateway.models import KEYLESS, Model, Route, Vendor

HEADING: Final = "# Farthing's catalog; see docs/catalog.md.\n"
MASKED_HEADING: Final = f'# A credential of "{KEPT_CREDENTIAL}" keeps the one that is stored.\n'
LINE_CHARACTERS: Final = 100


class _Number(str):
    """A decimal's digits, written as they stand: no float comes near them."""

    __slots__ = ()


class _Moment(str):
    """RFC 3339, written without quotes."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Keeps the order of keys, shares nothing between places and indents lists."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)


def _number(dumper: yaml.SafeDumper, number: _Number) -> yaml.Node:
    tag = "float" if "." in number else "int"
    return dumper.represent_scalar(f"tag:yaml.org,2002:{tag}", str(number))


def _moment(dumper: yaml.SafeDumper, moment: _Moment) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:timestamp", str(moment))


_Dumper.add_representer(_Number, _number)
_Dumper.add_representer(_Moment, _moment)


def export(*, with_credentials: bool = False) -> str:
    """YAML of what is active; prices in force and planned. Credentials are masked unless asked."""
    vendors = Vendor.objects.filter(is_active=True).order_by("name")
    now = timezone.now()
    plans = _plans(now)
    content = {
        "vendors": [_vendor(vendor, with_credentials) for vendor in vendors],
        **({"plans": plans} if plans else {}),
        "models": _models(now),
    }
    heading = HEADING if with_credentials else HEADING + MASKED_HEADING
    return heading + yaml.dump(
        content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_CHARACTERS
    )


def _vendor(vendor: Vendor, with_credentials: bool) -> dict[str, Any]:
    is_secret = vendor.credential not in {"", KEYLESS}
    credential = vendor.credential if with_credentials or not is_secret else KEPT_CREDENTIAL
    return {
        "name": vendor.name,
        "base_url": without_environment(vendor.base_url),
        "credential": without_environment(credential),
        "connect_timeout": _Number(seconds_text(vendor.connect_timeout_ms)),
        "first_byte_timeout": _Number(seconds_text(vendor.first_byte_timeout_ms)),
        "idle_timeout": _Number(seconds_text(vendor.idle_timeout_ms)),
        "total_timeout": _Number(seconds_text(vendor.total_timeout_ms)),
        "max_connections": vendor.max_connections,
        "keep_alive": _Number(seconds_text(vendor.keep_alive_ms)),
        "breaker_failures": vendor.breaker_failures,
        "breaker_percent": vendor.breaker_percent,
        "breaker_window": _Number(seconds_text(vendor.breaker_window_ms)),
        "breaker_pause": _Number(seconds_text(vendor.breaker_pause_ms)),
        "client_gone": vendor.client_gone,
        "cached_tokens": vendor.cached_tokens,
        "accepts_stream_options": vendor.accepts_stream_options,
        "qualification": vendor.qualification,
    }


def _models(now: datetime) -> list[dict[str, Any]]:
    models = Model.objects.filter(is_active=True).order_by("name")
    routes = Route.objects.filter(vendor__is_active=True).select_related("vendor")
    by_model: dict[int, list[dict[str, Any]]] = {}
    for route in routes.order_by("priority", "vendor__name", "vendor_model"):
        by_model.setdefault(route.model_id, []).append(_route(route))
    prices = stored_versions(model.name for model in models)
    return [
        {
            "name": model.name,
            **({} if model.family is None else {"family": model.family}),
            "context_tokens": model.context_tokens,
            "max_output_tokens": model.max_output_tokens,
            "default_output_tokens": model.default_output_tokens,
            "sticky_routes": model.sticky_routes,
            "routes": by_model.get(model.pk, []),
            "prices": [
                _price(kind, version)
                for kind, versions in sorted(prices[model.name].items())
                for version in current_and_planned(versions, now)
            ],
        }
        for model in models
    ]


def _route(route: Route) -> dict[str, Any]:
    values = {name: getattr(route, name) for name in ROUTE_FIELDS}
    kept = {name: value for name, value in values.items() if value is not None}
    return {"vendor": route.vendor.name, "vendor_model": route.vendor_model, **kept}


def _price(kind: Kind, version: Version[PriceFigures]) -> dict[str, Any]:
    plan, currency = kind
    content = {
        **({"plan": plan} if plan else {}),
        "currency": currency,
        "effective_from": _Moment(moment_text(version.effective_from)),
        **_numbers(version.figures.given()),
    }
    tiers = [
        {"above_prompt_tokens": above, **_numbers(given.items())}
        for above, given in version.figures.given_of_tiers()
    ]
    return {**content, "tiers": tiers} if tiers else content


def _numbers(given: Iterable[tuple[str, int]]) -> dict[str, _Number]:
    return {name: _Number(price_text(nanos)) for name, nanos in given}


def _plans(now: datetime) -> list[dict[str, Any]]:
    stored = stored_terms()
    return [
        {
            "name": name,
            "terms": [
                _terms(currency, version)
                for currency, versions in sorted(stored[name].items())
                for version in current_and_planned(versions, now)
            ],
        }
        for name in Plan.objects.order_by("name").values_list("name", flat=True)
    ]


def _terms(currency: str, version: Version[TermsFigures]) -> dict[str, Any]:
    figures = version.figures
    discount = BASIS_POINTS - figures.price_factor_bps
    content = {
        "monthly_fee": _number_or_none(figures.monthly_fee_nanos),
        "included_credit": _number_or_none(figures.included_credit_nanos),
        "discount_percent": _Number(percent_text(discount)) if discount > 0 else None,
        "markup_percent": _Number(percent_text(-discount)) if discount < 0 else None,
        "allowed_models": None if figures.allowed_models is None else list(figures.allowed_models),
        "requests_per_minute": figures.requests_per_minute,
        "concurrent_requests": figures.concurrent_requests,
        "spend_limits": [
            {"period": period, "amount": _Number(price_text(nanos)), "action": action}
            for period, nanos, action in figures.spend_limits
        ]
        or None,
    }
    kept = {name: value for name, value in content.items() if value is not None}
    start = _Moment(moment_text(version.effective_from))
    return {"currency": currency, "effective_from": start, **kept}


def _number_or_none(nanos: int) -> _Number | None:
    return _Number(price_text(nanos)) if nanos else None
