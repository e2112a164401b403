"""Reading a catalog file: all that is wrong with it at once, or all that it says."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from billing.money import BASIS_POINTS
from gateway.catalog import nodes
from gateway.catalog.entries import (
    Catalog,
    CatalogMistakes,
    Mistake,
    ModelEntry,
    PlanEntry,
    PriceEntry,
    RouteEntry,
    TermsEntry,
    TierEntry,
    VendorEntry,
)
from gateway.catalog.nodes import Reading, Record
from gateway.catalog.prices import DIMENSIONS
from gateway.catalog.schema import FILE_KEYS, VENDOR_KEYS

SECONDS: Final = (nodes.seconds_ms, nodes.seconds_or_0_ms)
FILE_BYTES_MAX: Final = 8 * 1024 * 1024


def parse(content: bytes, environment: Mapping[str, str] = os.environ) -> Catalog:
    """Raises CatalogMistakes with everything that is wrong."""
    reading = Reading(environment)
    node = _compose(content)
    whole = nodes.record(node, FILE_KEYS, "the file", reading)
    vendors: list[Record] = whole.values.get("vendors", [])
    models: list[Record] = whole.values.get("models", [])
    if "vendors" in whole.values:
        _check_route_vendors(models, {record.values.get("name") for record in vendors}, reading)
    if reading.mistakes:
        raise CatalogMistakes(reading.mistakes)
    return Catalog(
        vendors=tuple(map(_vendor_entry, vendors)),
        models=tuple(map(_model_entry, models)),
        plans=tuple(map(_plan_entry, whole.values["plans"])),
    )


def _compose(content: bytes) -> yaml.Node:
    if len(content) > FILE_BYTES_MAX:
        raise CatalogMistakes([Mistake(1, f"the file is larger than {FILE_BYTES_MAX} bytes.")])
    try:
        text = content.decode("utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CatalogMistakes([Mistake(line, "this is not UTF-8; expected UTF-8.")]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise CatalogMistakes([Mistake(line, "a control character; expected text.")]) from None
    except yaml.MarkedYAMLError as error:
        raise CatalogMistakes([_yaml_mistake(error)]) from None
    except RecursionError:
        raise CatalogMistakes([Mistake(1, "the file is nested too deeply.")]) from None
    if node is None:
        raise CatalogMistakes([Mistake(1, "the file is empty; expected vendors and models.")])
    return node


def _yaml_mistake(error: yaml.MarkedYAMLError) -> Mistake:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "it cannot be read"
    return Mistake(mark.line + 1 if mark else 1, f"no YAML: {problem}.")


def _check_route_vendors(models: Iterable[Record], known: set[Any], reading: Reading) -> None:
    for model in models:
        for route in model.values.get("routes", ()):
            vendor = route.values.get("vendor")
            if vendor is not None and vendor not in known:
                reading.complain(
                    route.node,
                    f"the route's vendor {vendor!r} is unknown; expected a name under vendors.",
                )


# --- records that are whole to entries --------------------------------------------------------


def _vendor_entry(record: Record) -> VendorEntry:
    values = {
        f"{name}_ms" if VENDOR_KEYS[name].read in SECONDS else name: value
        for name, value in record.values.items()
    }
    return VendorEntry(line=record.line, **values)


def _model_entry(record: Record) -> ModelEntry:
    values = dict(record.values)
    routes = tuple(_route_entry(route) for route in values.pop("routes"))
    prices = tuple(_price_entry(price) for price in values.pop("prices"))
    return ModelEntry(line=record.line, routes=routes, prices=prices, **values)


def _route_entry(record: Record) -> RouteEntry:
    return RouteEntry(line=record.line, **record.values)


def _price_entry(record: Record) -> PriceEntry:
    values = dict(record.values)
    tiers = tuple(TierEntry(**_in_nanos(tier)) for tier in values.pop("tiers"))
    return PriceEntry(tiers=tiers, **_in_nanos(Record(record.node, values)))


def _in_nanos(record: Record) -> dict[str, Any]:
    """A file's names as an entry's: a price's unit stands in its name."""
    values = {
        f"{name}_nanos" if name in DIMENSIONS else name: value
        for name, value in record.values.items()
    }
    return {"line": record.line, **values}


def _plan_entry(record: Record) -> PlanEntry:
    terms = tuple(_terms_entry(terms) for terms in record.values["terms"])
    return PlanEntry(line=record.line, name=record.values["name"], terms=terms)


def _terms_entry(record: Record) -> TermsEntry:
    values = dict(record.values)
    factor = BASIS_POINTS - values.pop("discount_percent") + values.pop("markup_percent")
    limits = [limit.values for limit in values.pop("spend_limits")]
    return TermsEntry(
        line=record.line,
        monthly_fee_nanos=values.pop("monthly_fee"),
        included_credit_nanos=values.pop("included_credit"),
        price_factor_bps=factor,
        spend_limits=tuple(
            sorted((limit["period"], limit["amount"], limit["action"]) for limit in limits)
        ),
        **values,
    )
