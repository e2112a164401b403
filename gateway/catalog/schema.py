"""The schema of a catalog file: which keys there are, and what each may be.

Secrets never stand in a mistake's words.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import yaml
from django.db.models import Field

from billing.estimation.registry import FAMILIES
from billing.money import BASIS_POINTS
from billing.rating import TOKEN_CLASSES
from gateway.catalog import nodes
from gateway.catalog.nodes import Key, Reading, Record, Wrong
from gateway.models import CachedTokens, ClientGone, Model, Qualification, Route, Vendor
from gateway.upstream.request import Origin

CREDENTIAL_CHARACTERS_MAX: Final = 8_192
BASE_URL_CHARACTERS_MAX: Final = 500
CONNECTIONS_MAX: Final = 100_000
FAILURES_MAX: Final = 1_000_000
TOKENS_MAX: Final = 1_000_000_000
SMALL_MAX: Final = 32_767  # a PostgreSQL smallint

_CREDENTIAL: Final = re.compile(r"[\x21-\x7e]*")
_BY_OTHERS: Final = None  # a default that depends on the record's other values


def _default(model: type[Vendor | Model | Route], name: str) -> Any:
    field = model._meta.get_field(name)  # noqa: SLF001  # Django's documented API
    return field.default if isinstance(field, Field) else None


# --- what a value may be ----------------------------------------------------------------------


def _base_url(node: yaml.Node, reading: Reading) -> str:
    expected = (
        "an http:// or https:// URL with a host and, where the vendor has one, a port and a path "
        "such as /v1; no user, query or fragment"
    )
    if not isinstance(node, yaml.ScalarNode) or nodes.is_null(node):
        raise Wrong(f"is no URL; expected {expected}.")
    found = nodes.with_environment(node.value, reading.environment).strip()
    try:
        Origin.from_base_url(found)
    except ValueError:
        found = ""
    # urlsplit drops tabs and line breaks; a URL that has some is a mistake all the same.
    if not found.isprintable() or " " in found or not 0 < len(found) <= BASE_URL_CHARACTERS_MAX:
        raise Wrong(f"is no such URL; expected {expected}.")
    return found.rstrip("/")


def _credential(node: yaml.Node, reading: Reading) -> str:
    """Trimmed: a pasted key often ends with a line break, and no header may."""
    if nodes.is_null(node):
        return ""
    if not isinstance(node, yaml.ScalarNode):
        raise Wrong("is a list or a mapping; expected a text.")
    found = nodes.with_environment(node.value, reading.environment).strip()
    if len(found) > CREDENTIAL_CHARACTERS_MAX or not _CREDENTIAL.fullmatch(found):
        raise Wrong("cannot go into a header; expected visible ASCII characters without spaces.")
    return found


_VENDOR_NAME = nodes.text(64, r"[A-Za-z0-9][A-Za-z0-9._-]*", "letters, digits, '.', '_' and '-'")
_PLAN_NAME = _VENDOR_NAME
_MODEL_NAME = nodes.text(256, r"[!-~]+", "a name of visible ASCII characters without spaces")
_FAMILY = nodes.choice(*sorted(FAMILIES))
_CURRENCY = nodes.text(3, r"[A-Z]{3}", "three capital letters such as USD")
_TOKENS = nodes.whole(1, TOKENS_MAX)

VENDOR_KEYS: Final = {
    "name": Key(_VENDOR_NAME),
    "base_url": Key(_base_url),
    "credential": Key(_credential),
    "connect_timeout": Key(nodes.seconds_ms, _default(Vendor, "connect_timeout_ms")),
    "first_byte_timeout": Key(nodes.seconds_ms, _default(Vendor, "first_byte_timeout_ms")),
    "idle_timeout": Key(nodes.seconds_ms, _default(Vendor, "idle_timeout_ms")),
    "total_timeout": Key(nodes.seconds_ms, _default(Vendor, "total_timeout_ms")),
    "max_connections": Key(nodes.whole(1, CONNECTIONS_MAX), _default(Vendor, "max_connections")),
    "keep_alive": Key(nodes.seconds_or_0_ms, _default(Vendor, "keep_alive_ms")),
    "breaker_failures": Key(nodes.whole(0, FAILURES_MAX), _default(Vendor, "breaker_failures")),
    "breaker_percent": Key(nodes.whole(1, 100), _default(Vendor, "breaker_percent")),
    "breaker_window": Key(nodes.seconds_ms, _default(Vendor, "breaker_window_ms")),
    "breaker_pause": Key(nodes.seconds_ms, _default(Vendor, "breaker_pause_ms")),
    "client_gone": Key(nodes.choice(*ClientGone.values), str(_default(Vendor, "client_gone"))),
    "cached_tokens": Key(
        nodes.choice(*CachedTokens.values), str(_default(Vendor, "cached_tokens"))
    ),
    "accepts_stream_options": Key(nodes.flag, _default(Vendor, "accepts_stream_options")),
    "qualification": Key(
        nodes.choice(*Qualification.values), str(_default(Vendor, "qualification"))
    ),
}
ROUTE_KEYS: Final = {
    "vendor": Key(_VENDOR_NAME),
    "vendor_model": Key(_MODEL_NAME),
    "priority": Key(nodes.whole(0, SMALL_MAX), _default(Route, "priority")),
    "weight": Key(nodes.whole(0, SMALL_MAX), _default(Route, "weight")),
    "family": Key(_FAMILY, None),
}
_RATE_KEYS: Final = {name: Key(nodes.price_nanos, None) for name in TOKEN_CLASSES}
TIER_KEYS: Final = {"above_prompt_tokens": Key(_TOKENS), **_RATE_KEYS}


# --- lists of records -------------------------------------------------------------------------


def _check_once(
    records: Iterable[Record], names: tuple[str, ...], what: str, reading: Reading
) -> None:
    first_lines: dict[tuple[Any, ...], int] = {}
    for record in records:
        if not all(name in record.values for name in names):
            continue
        key = tuple(record.values[name] for name in names)
        if key not in first_lines:
            first_lines[key] = record.line
            continue
        first = first_lines[key]
        reading.complain(record.node, f"{what} {_words(key)} stands twice; first on line {first}.")


def _words(key: Iterable[Any]) -> str:
    return " ".join("from now" if part is None else _word(part) for part in key if part != "")


def _word(part: Any) -> str:
    return part.isoformat() if isinstance(part, datetime) else str(part)


def _routes(node: yaml.Node, reading: Reading) -> list[Record]:
    records = [
        nodes.record(item, ROUTE_KEYS, "a route", reading)
        for item in nodes.each(node, "routes", reading)
    ]
    _check_once(records, ("vendor", "vendor_model"), "route", reading)
    return records


def _tiers(node: yaml.Node, reading: Reading) -> list[Record]:
    records = [
        nodes.record(item, TIER_KEYS, "a tier", reading)
        for item in nodes.each(node, "tiers", reading)
    ]
    _check_once(records, ("above_prompt_tokens",), "tier", reading)
    return sorted(records, key=lambda record: record.values.get("above_prompt_tokens", 0))


def _prices(node: yaml.Node, reading: Reading) -> list[Record]:
    records = [
        nodes.record(item, PRICE_KEYS, "a price", reading)
        for item in nodes.each(node, "prices", reading)
    ]
    _check_once(records, ("plan", "currency", "effective_from"), "price", reading)
    return records


PRICE_KEYS: Final = {
    "plan": Key(_PLAN_NAME, ""),
    "currency": Key(_CURRENCY, "USD"),
    "effective_from": Key(nodes.moment, None),
    **_RATE_KEYS,
    "per_request": Key(nodes.price_nanos, 0),
    "tiers": Key(_tiers, ()),
}
MODEL_KEYS: Final = {
    "name": Key(_MODEL_NAME),
    "family": Key(_FAMILY, None),
    "context_tokens": Key(_TOKENS, _default(Model, "context_tokens")),
    "max_output_tokens": Key(_TOKENS, _BY_OTHERS),
    "default_output_tokens": Key(_TOKENS, _BY_OTHERS),
    "sticky_routes": Key(nodes.flag, _default(Model, "sticky_routes")),
    "routes": Key(_routes),
    "prices": Key(_prices, ()),
}


def _complete_tokens(record: Record, reading: Reading) -> None:
    """Defaults never contradict what stands in the file; what stands there must fit together."""
    values = record.values
    limits = ("context_tokens", "max_output_tokens", "default_output_tokens")
    if not all(name in values for name in limits):
        return
    for larger, smaller in pairwise(limits):
        if values[smaller] is None:
            values[smaller] = min(values[larger], _default(Model, smaller))
        elif values[smaller] > values[larger]:
            reading.complain(
                record.node,
                f"{smaller} is {values[smaller]}; expected at most {larger}, {values[larger]}.",
            )


def _vendors(node: yaml.Node, reading: Reading) -> list[Record]:
    records = [
        nodes.record(item, VENDOR_KEYS, "a vendor", reading)
        for item in nodes.each(node, "vendors", reading)
    ]
    _check_once(records, ("name",), "vendor", reading)
    return records


def _models(node: yaml.Node, reading: Reading) -> list[Record]:
    records = [
        nodes.record(item, MODEL_KEYS, "a model", reading)
        for item in nodes.each(node, "models", reading)
    ]
    _check_once(records, ("name",), "model", reading)
    for record in records:
        _complete_tokens(record, reading)
    return records


# --- plans ------------------------------------------------------------------------------------

SPEND_LIMIT_KEYS: Final = {
    "period": Key(nodes.choice("day", "week", "month", "total")),
    "amount": Key(nodes.price_nanos),
    "action": Key(nodes.choice("hard", "warn"), "hard"),
}


def _spend_limits(node: yaml.Node, reading: Reading) -> list[Record]:
    records = [
        nodes.record(item, SPEND_LIMIT_KEYS, "a spend limit", reading)
        for item in nodes.each(node, "spend_limits", reading)
    ]
    _check_once(records, ("period",), "spend limit", reading)
    return records


def _model_names(node: yaml.Node, reading: Reading) -> tuple[str, ...]:
    names = [_MODEL_NAME(item, reading) for item in nodes.each(node, "allowed_models", reading)]
    return tuple(sorted(set(names)))


TERMS_KEYS: Final = {
    "currency": Key(_CURRENCY, "USD"),
    "effective_from": Key(nodes.moment, None),
    "monthly_fee": Key(nodes.price_nanos, 0),
    "included_credit": Key(nodes.price_nanos, 0),
    "discount_percent": Key(nodes.percent_bps, 0),
    "markup_percent": Key(nodes.percent_bps, 0),
    "allowed_models": Key(_model_names, None),
    "requests_per_minute": Key(nodes.whole(1, TOKENS_MAX), None),
    "concurrent_requests": Key(nodes.whole(1, TOKENS_MAX), None),
    "spend_limits": Key(_spend_limits, ()),
}


def _terms(node: yaml.Node, reading: Reading) -> list[Record]:
    records = [
        nodes.record(item, TERMS_KEYS, "terms", reading)
        for item in nodes.each(node, "terms", reading)
    ]
    _check_once(records, ("currency", "effective_from"), "terms", reading)
    for record in records:
        discount = record.values.get("discount_percent", 0)
        if discount and record.values.get("markup_percent"):
            reading.complain(record.node, "terms have a discount and a markup; expected one.")
        if discount > BASIS_POINTS:
            reading.complain(record.node, "discount_percent is above 100; expected at most 100.")
    return records


PLAN_KEYS: Final = {"name": Key(_PLAN_NAME), "terms": Key(_terms)}


def _plans(node: yaml.Node, reading: Reading) -> list[Record]:
    records = [
        nodes.record(item, PLAN_KEYS, "a plan", reading)
        for item in nodes.each(node, "plans", reading)
    ]
    _check_once(records, ("name",), "plan", reading)
    return records


FILE_KEYS: Final = {"vendors": Key(_vendors), "models": Key(_models), "plans": Key(_plans, ())}
