"""What was found of a vendor, what people decided about it, and the state that follows.

A check changes nothing but `qualified_…`, and only with hysteresis; people change nothing but
`override_reason` and `disabled_…`. So neither undoes the other.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from gateway.models import Route, Vendor, VendorCheck
from gateway.qualification.checks import Subject
from gateway.qualification.findings import JsonObject
from gateway.qualification.gate import VendorState, state_of
from gateway.qualification.run import Outcome
from keys.models import AuditAction
from keys.services import record

FAILURES_TO_LOSE: Final = 3  # in a row, of any one model
PASSES_TO_REGAIN: Final = 2  # in a row, of every model that has failed; one is enough elsewhere
HISTORY_CHECKS: Final = 20  # of a model: what happened before is forgotten
KEPT_CHECKS: Final = 100  # of a model; older ones are removed
REASON_CHARACTERS_MAX: Final = 500
CHECKER: Final = "check_vendor"


class BadReasonError(ValueError):
    """A person's act on a vendor needs a reason of 1 to 500 characters."""


def subjects_of(vendor: Vendor) -> list[Subject]:
    """The vendor's models that clients can reach, each once, as the catalog knows them."""
    routes = Route.objects.filter(vendor=vendor, model__is_active=True).select_related("model")
    found: dict[str, Subject] = {}
    for route in routes.order_by("vendor_model", "priority", "pk"):
        subject = Subject(
            route.vendor_model,
            family=route.family or route.model.family,
            context_tokens=route.model.context_tokens,
            accepts_stream_options=vendor.accepts_stream_options,
        )
        found.setdefault(subject.model, subject)
    return list(found.values())


def latest_checks(*vendors: Vendor) -> list[VendorCheck]:
    """The newest check of each model at each vendor's present address, by vendor and model.

    Their reports, which are large, are read when they are asked for.
    """
    checks = VendorCheck.objects.filter(vendor__in=vendors, base_url=F("vendor__base_url"))
    newest = checks.order_by("vendor_id", "vendor_model", "-started_at", "-pk")
    return list(newest.distinct("vendor_id", "vendor_model").defer("report"))


def keep(vendor: Vendor, outcome: Outcome, report: JsonObject) -> VendorCheck:
    """Store a run, and let the vendor win or lose its qualification by it.

    A run at another address than the vendor's present one is kept and decides nothing.
    """
    with transaction.atomic():
        locked = Vendor.objects.select_for_update().get(pk=vendor.pk)
        check = VendorCheck.objects.create(
            vendor=locked,
            vendor_model=outcome.subject.model,
            base_url=outcome.base_url,
            started_at=outcome.started_at,
            finished_at=outcome.finished_at,
            passed=outcome.passed,
            spent_tokens=outcome.spent_tokens,
            report=report,
        )
        _decide(locked, timezone.now())
        _forget_old(check)
    return check


def _forget_old(newest: VendorCheck) -> None:
    of_model = VendorCheck.objects.filter(
        vendor_id=newest.vendor_id, vendor_model=newest.vendor_model
    )
    of_model.filter(pk__in=of_model.values("pk")[KEPT_CHECKS:]).delete()


# --- what checks decide -----------------------------------------------------------------------


def _decide(vendor: Vendor, now: datetime) -> None:
    is_qualified = vendor.qualified_base_url == vendor.base_url
    histories = _histories(vendor)
    if is_qualified and any(map(has_lost, histories)):
        _qualify(vendor, "", None, AuditAction.VENDOR_UNQUALIFIED)
    elif not is_qualified and histories and all(map(has_gained, histories)):
        _qualify(vendor, vendor.base_url, now, AuditAction.VENDOR_QUALIFIED)


def has_lost(history: Sequence[bool]) -> bool:
    """Of a model's decided checks, newest first."""
    newest = history[:FAILURES_TO_LOSE]
    return len(newest) == FAILURES_TO_LOSE and not any(newest)


def has_gained(history: Sequence[bool]) -> bool:
    """Of a model's decided checks, newest first."""
    needed = 1 if all(history) else PASSES_TO_REGAIN
    newest = history[:needed]
    return len(newest) == needed and all(newest)


def _histories(vendor: Vendor) -> list[list[bool]]:
    """Of each model in use, the newest decided checks at the present address, newest first."""
    checks = VendorCheck.objects.filter(vendor=vendor, base_url=vendor.base_url)
    names = {subject.model for subject in subjects_of(vendor)}
    names = names or set(checks.values_list("vendor_model", flat=True))
    decided = checks.filter(passed__isnull=False).values_list("passed", flat=True)
    return [
        [bool(passed) for passed in decided.filter(vendor_model=name)[:HISTORY_CHECKS]]
        for name in sorted(names)
    ]


def _qualify(vendor: Vendor, base_url: str, at: datetime | None, action: AuditAction) -> None:
    vendor.qualified_base_url, vendor.qualified_at = base_url, at
    vendor.save(update_fields=["qualified_base_url", "qualified_at"])
    _leave_trail(vendor, action, actor=CHECKER, reason="")


# --- what people decide -----------------------------------------------------------------------


def disable(vendor: Vendor, *, actor: str, reason: str) -> None:
    """Out of live traffic until a person says otherwise. Raises BadReasonError."""
    reason = _reason(reason)
    with transaction.atomic():
        locked = Vendor.objects.select_for_update().get(pk=vendor.pk)
        locked.disabled_reason = reason
        locked.disabled_at = locked.disabled_at or timezone.now()
        locked.save(update_fields=["disabled_reason", "disabled_at"])
        _leave_trail(locked, AuditAction.VENDOR_DISABLED, actor=actor, reason=reason)


def enable(vendor: Vendor, *, actor: str, reason: str) -> None:
    """Back to what checks, overrides and the catalog say. Raises BadReasonError."""
    reason = _reason(reason)
    with transaction.atomic():
        locked = Vendor.objects.select_for_update().get(pk=vendor.pk)
        if state_of(locked) is not VendorState.DISABLED:
            return
        locked.disabled_reason, locked.disabled_at = "", None
        locked.save(update_fields=["disabled_reason", "disabled_at"])
        _leave_trail(locked, AuditAction.VENDOR_ENABLED, actor=actor, reason=reason)


def override(vendor: Vendor, *, actor: str, reason: str) -> None:
    """Let it in although it is not qualified. Raises BadReasonError."""
    _set_override(vendor, _reason(reason), AuditAction.VENDOR_OVERRIDDEN, actor, reason)


def withdraw_override(vendor: Vendor, *, actor: str, reason: str) -> None:
    """Raises BadReasonError."""
    _reason(reason)
    _set_override(vendor, "", AuditAction.VENDOR_OVERRIDE_WITHDRAWN, actor, reason)


def _set_override(
    vendor: Vendor, stored: str, action: AuditAction, actor: str, reason: str
) -> None:
    with transaction.atomic():
        locked = Vendor.objects.select_for_update().get(pk=vendor.pk)
        if locked.override_reason == stored:
            return
        locked.override_reason = stored
        locked.save(update_fields=["override_reason"])
        _leave_trail(locked, action, actor=actor, reason=_reason(reason))


def _reason(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    if not 0 < len(text) <= REASON_CHARACTERS_MAX or not text.isprintable():
        raise BadReasonError(f"Give a reason of 1 to {REASON_CHARACTERS_MAX} characters.")
    return text


def _leave_trail(vendor: Vendor, action: AuditAction, *, actor: str, reason: str) -> None:
    record(action, tenant_id=None, actor=actor, subject=vendor.name, reason=reason)
