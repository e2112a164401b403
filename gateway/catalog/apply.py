"""Making the database say what a catalog file says, in one transaction."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from django.db import connection, transaction
from django.utils import timezone

from gateway.catalog.diff import Diff, seconds_text
from gateway.catalog.entries import (
    KEPT_CREDENTIAL,
    Catalog,
    CatalogMistakes,
    Mistake,
    ModelEntry,
    RouteEntry,
    VendorEntry,
)
from gateway.catalog.file import parse
from gateway.catalog.plans import add_plans
from gateway.catalog.prices import add_versions
from gateway.models import Model, Route, Vendor
from gateway.qualification.gate import admission
from keys.models import AuditAction
from keys.services import record

BUILT_IN_VENDOR: Final = "benchecho"  # what test keys resolve to: never deactivated by absence
CATALOG_LOCK: Final = 0x6361_7461_6C6F_67  # one apply at a time; the number spells "catalog"
AUDITED_LINES: Final = 200
AUDIT_SUBJECT_CHARACTERS: Final = 200

VENDOR_FIELDS: Final = (
    "base_url",
    "credential",
    "connect_timeout_ms",
    "first_byte_timeout_ms",
    "idle_timeout_ms",
    "total_timeout_ms",
    "max_connections",
    "keep_alive_ms",
    "breaker_failures",
    "breaker_percent",
    "breaker_window_ms",
    "breaker_pause_ms",
    "client_gone",
    "cached_tokens",
    "accepts_stream_options",
    "qualification",
)
MODEL_FIELDS: Final = (
    "family",
    "context_tokens",
    "max_output_tokens",
    "default_output_tokens",
    "sticky_routes",
)
ROUTE_FIELDS: Final = ("priority", "weight", "family")


def apply_file(
    path: Path,
    *,
    actor: str,
    dry_run: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Diff:
    """Raises OSError and CatalogMistakes; then nothing was changed."""
    catalog = parse(path.read_bytes(), environment)
    return apply(catalog, source=str(path), actor=actor, dry_run=dry_run)


def apply(catalog: Catalog, *, source: str, actor: str, dry_run: bool = False) -> Diff:
    """Returns what changed, or with `dry_run` what would. Raises CatalogMistakes.

    A dry run does the whole work and takes it back: what it says is what would happen.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CATALOG_LOCK])
        diff = _reconcile(catalog, timezone.now())
        if diff.changes:
            _leave_trail(diff, source, actor)
        if dry_run:
            transaction.set_rollback(True)
    return diff


def _reconcile(catalog: Catalog, now: datetime) -> Diff:
    diff = Diff()
    vendors, mistakes = _vendors(catalog.vendors, diff)
    models = _models(catalog.models, diff)
    _routes(catalog.models, models, vendors, diff)
    plans, plan_mistakes = add_plans(catalog.plans, now, diff)
    mistakes += plan_mistakes + add_versions(catalog.models, plans, now, diff)
    if mistakes:
        raise CatalogMistakes(mistakes)
    return diff


def _leave_trail(diff: Diff, source: str, actor: str) -> None:
    record(
        AuditAction.CATALOG_APPLIED,
        tenant_id=None,
        actor=actor,
        subject=source[-AUDIT_SUBJECT_CHARACTERS:],
        detail={
            "summary": diff.summary,
            "changes": [str(change) for change in diff.changes[:AUDITED_LINES]],
        },
    )


# --- vendors and models: what is gone from the file is deactivated, since history names it ------


def _vendors(entries: Sequence[VendorEntry], diff: Diff) -> tuple[dict[str, Vendor], list[Mistake]]:
    rows = {row.name: row for row in Vendor.objects.order_by("pk")}
    mistakes = []
    for entry in entries:
        row = rows.get(entry.name)
        if row is None and entry.credential == KEPT_CREDENTIAL:
            mistakes.append(
                Mistake(
                    entry.line,
                    f"the credential {KEPT_CREDENTIAL!r} keeps the stored one, and vendor "
                    f"{entry.name} has none stored; expected the credential.",
                )
            )
        elif row is None:
            rows[entry.name] = Vendor.objects.create(name=entry.name, **_values(entry))
            diff.add(f"vendor {entry.name}", f"base_url {entry.base_url}")
        else:
            _update(row, _values(entry), f"vendor {entry.name}", diff)
        if entry.name in rows and not (found := admission(rows[entry.name])).is_open:
            diff.warnings.append(f"vendor {entry.name} takes no live traffic: {found.reason}")
    named = {entry.name for entry in entries} | {BUILT_IN_VENDOR}
    _deactivate((row for row in rows.values() if row.name not in named), "vendor", diff)
    return rows, mistakes


def _values(entry: VendorEntry) -> dict[str, Any]:
    values = {name: getattr(entry, name) for name in VENDOR_FIELDS}
    if entry.credential == KEPT_CREDENTIAL:
        del values["credential"]
    return values


def _models(entries: Sequence[ModelEntry], diff: Diff) -> dict[str, Model]:
    rows = {row.name: row for row in Model.objects.order_by("pk")}
    for entry in entries:
        values = {name: getattr(entry, name) for name in MODEL_FIELDS}
        row = rows.get(entry.name)
        if row is None:
            rows[entry.name] = Model.objects.create(name=entry.name, **values)
            diff.add(f"model {entry.name}")
        else:
            _update(row, values, f"model {entry.name}", diff)
        if not entry.routes:
            diff.warnings.append(f"model {entry.name} has no route: requests for it are refused")
    named = {entry.name for entry in entries}
    _deactivate((row for row in rows.values() if row.name not in named), "model", diff)
    return rows


def _update(row: Vendor | Model, values: Mapping[str, Any], subject: str, diff: Diff) -> None:
    changed = _changed(row, {**values, "is_active": True})
    if changed:
        diff.change(subject, *(_words(row, name, value) for name, value in changed.items()))
        _save(row, changed)


def _deactivate(rows: Iterable[Vendor | Model], what: str, diff: Diff) -> None:
    for row in rows:
        if row.is_active:
            diff.remove(f"{what} {row.name}", "deactivated")
            _save(row, {"is_active": False})


# --- routes: nothing refers to them, so they come and go ----------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """A route's identity."""

    model: str
    vendor: str
    vendor_model: str

    def __str__(self) -> str:
        return f"route {self.model} → {self.vendor} {self.vendor_model}"


def _routes(
    entries: Sequence[ModelEntry],
    models: Mapping[str, Model],
    vendors: Mapping[str, Vendor],
    diff: Diff,
) -> None:
    wanted = {
        _Place(entry.name, route.vendor, route.vendor_model): route
        for entry in entries
        for route in entry.routes
        if route.vendor in vendors
    }
    rows = {
        _Place(row.model.name, row.vendor.name, row.vendor_model): row
        for row in Route.objects.select_related("model", "vendor").order_by("pk")
    }
    for place, route in wanted.items():
        values = _route_values(route)
        if place not in rows:
            Route.objects.create(
                model=models[place.model],
                vendor=vendors[place.vendor],
                vendor_model=place.vendor_model,
                **values,
            )
            diff.add(str(place))
        elif changed := _changed(rows[place], values):
            row = rows[place]
            diff.change(str(place), *(_words(row, name, value) for name, value in changed.items()))
            _save(row, changed)
    for place, row in rows.items():
        if place not in wanted:
            row.delete()
            diff.remove(str(place))


def _route_values(route: RouteEntry) -> dict[str, Any]:
    return {name: getattr(route, name) for name in ROUTE_FIELDS}


# --- one row ----------------------------------------------------------------------------------


def _changed(row: Vendor | Model | Route, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if getattr(row, name) != value}


def _save(row: Vendor | Model | Route, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))


def _words(row: Vendor | Model | Route, name: str, new: Any) -> str:
    """`weight 1 → 2`, in the file's names and units."""
    if name == "credential":
        return "credential changed"
    if name == "is_active":
        return "activated"
    if name.endswith("_ms"):
        return f"{name[:-3]} {seconds_text(getattr(row, name))} → {seconds_text(new)}"
    return f"{name} {_value_text(getattr(row, name))} → {_value_text(new)}"


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)
