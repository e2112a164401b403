"""Corrections of our counts: proposed by the nightly comparison, decided by staff, never backwards.

A version is in force for the exchanges that arrived after it was accepted. To withdraw one is to
accept the next version, which changes nothing.
"""

from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from billing.errors import BadCorrectionAct, CorrectionDecided
from billing.estimation.corrections import UNCHANGED, Correction, SideCorrection
from billing.models import CorrectionState, CountCorrection
from keys.models import AuditAction
from keys.services import REASON_LENGTH_MAX, record

DECLINED_FOR: Final = timedelta(days=30)
"""So long nothing like what was declined is proposed again."""
ALIKE_PER_MILLE: Final = 20
ALIKE_TOKENS: Final = 3

# One at a time numbers the versions of a vendor's model.
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


def in_force(vendor: str, vendor_model: str, at: datetime) -> CountCorrection | None:
    """The version for an exchange that arrived then."""
    return (
        CountCorrection.objects.filter(
            vendor=vendor,
            vendor_model=vendor_model,
            state=CorrectionState.ACCEPTED,
            decided_at__lte=at,
        )
        .order_by("-version")
        .first()
    )


def all_in_force() -> dict[tuple[str, str], CountCorrection]:
    """The newest accepted version of every vendor model, by vendor and model."""
    newest = (
        CountCorrection.objects.filter(state=CorrectionState.ACCEPTED)
        .order_by("vendor", "vendor_model", "-version")
        .distinct("vendor", "vendor_model")
    )
    return {(row.vendor, row.vendor_model): row for row in newest}


def of_model(vendor: str, vendor_model: str) -> QuerySet[CountCorrection]:
    """Every version, the newest first."""
    rows = CountCorrection.objects.filter(vendor=vendor, vendor_model=vendor_model)
    return rows.order_by("-version")


def value_of(row: CountCorrection | None) -> Correction | None:
    """What counting needs of it."""
    if row is None:
        return None
    return Correction(
        version=row.version,
        family=row.family,
        rule_version=row.rule_version,
        prompt=SideCorrection(row.prompt_per_mille, row.prompt_offset),
        completion=SideCorrection(row.completion_per_mille, row.completion_offset),
        prompt_error=row.prompt_error,
        completion_error=row.completion_error,
    )


def propose(vendor: str, vendor_model: str, found: Correction, sample_size: int) -> bool:
    """Put the next version before staff, in place of what waits; False if they just declined it.

    `found.version` is given here.
    """
    with transaction.atomic():
        _lock(vendor, vendor_model)
        rows = CountCorrection.objects.filter(vendor=vendor, vendor_model=vendor_model)
        if _was_declined(rows, found):
            return False
        rows.filter(state=CorrectionState.PROPOSED).update(
            state=CorrectionState.SUPERSEDED, decided_at=timezone.now()
        )
        _create(vendor, vendor_model, found, sample_size, CorrectionState.PROPOSED)
    return True


def decide(correction_id: int, *, accepts: bool, actor: str, reason: str) -> CountCorrection:
    """Accept or decline a proposal. Raises BadCorrectionAct, CorrectionDecided."""
    reason = _reason(reason)
    with transaction.atomic():
        row = CountCorrection.objects.select_for_update().filter(pk=correction_id).first()
        if row is None or row.state != CorrectionState.PROPOSED:
            raise CorrectionDecided("It was decided meanwhile; nothing was done.")
        row.state = CorrectionState.ACCEPTED if accepts else CorrectionState.DECLINED
        row.decided_at = timezone.now()
        row.save(update_fields=["state", "decided_at"])
        action = AuditAction.CORRECTION_ACCEPTED if accepts else AuditAction.CORRECTION_DECLINED
        _leave_trail(row, action, actor, reason)
    return row


def withdraw(correction_id: int, *, actor: str, reason: str) -> CountCorrection:
    """Count without it from now on. Raises BadCorrectionAct, CorrectionDecided."""
    reason = _reason(reason)
    with transaction.atomic():
        row = CountCorrection.objects.filter(pk=correction_id).first()
        if row is None:
            raise CorrectionDecided("There is no such correction.")
        _lock(row.vendor, row.vendor_model)
        held = in_force(row.vendor, row.vendor_model, timezone.now())
        if held is None or held.pk != row.pk:
            raise CorrectionDecided("It is not in force any more; nothing was done.")
        plain = Correction(
            version=0,
            family=row.family,
            rule_version=row.rule_version,
            prompt=UNCHANGED,
            completion=UNCHANGED,
            prompt_error=None,
            completion_error=None,
        )
        next_row = _create(row.vendor, row.vendor_model, plain, 0, CorrectionState.ACCEPTED)
        _leave_trail(row, AuditAction.CORRECTION_WITHDRAWN, actor, reason)
    return next_row


def _lock(vendor: str, vendor_model: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [f"correction {vendor} {vendor_model}"])


def _create(
    vendor: str, vendor_model: str, found: Correction, sample_size: int, state: CorrectionState
) -> CountCorrection:
    rows = CountCorrection.objects.filter(vendor=vendor, vendor_model=vendor_model)
    newest = rows.aggregate(newest=Max("version"))["newest"] or 0
    return CountCorrection.objects.create(
        vendor=vendor,
        vendor_model=vendor_model,
        version=newest + 1,
        family=found.family,
        rule_version=found.rule_version,
        prompt_per_mille=found.prompt.per_mille,
        prompt_offset=found.prompt.offset,
        prompt_error=found.prompt_error,
        completion_per_mille=found.completion.per_mille,
        completion_offset=found.completion.offset,
        completion_error=found.completion_error,
        sample_size=sample_size,
        state=state,
        decided_at=timezone.now() if state == CorrectionState.ACCEPTED else None,
    )


def _was_declined(rows: QuerySet[CountCorrection], found: Correction) -> bool:
    """Whether the last word of staff was no to the like of it, and not long ago."""
    decided = (CorrectionState.ACCEPTED, CorrectionState.DECLINED)
    newest = rows.filter(state__in=decided).order_by("-version").first()
    was = value_of(newest)
    return (
        newest is not None
        and was is not None
        and newest.state == CorrectionState.DECLINED
        and newest.decided_at is not None
        and newest.decided_at > timezone.now() - DECLINED_FOR
        and (was.family, was.rule_version) == (found.family, found.rule_version)
        and _are_alike(was.prompt, found.prompt)
        and _are_alike(was.completion, found.completion)
    )


def _are_alike(one: SideCorrection, other: SideCorrection) -> bool:
    return (
        abs(one.per_mille - other.per_mille) <= ALIKE_PER_MILLE
        and abs(one.offset - other.offset) <= ALIKE_TOKENS
    )


def _reason(text: str) -> str:
    text = " ".join(text.split())
    if not 0 < len(text) <= REASON_LENGTH_MAX or not text.isprintable():
        raise BadCorrectionAct(f"Give a reason of 1 to {REASON_LENGTH_MAX} characters.")
    return text


def _leave_trail(row: CountCorrection, action: AuditAction, actor: str, reason: str) -> None:
    record(
        action,
        tenant_id=None,
        actor=actor,
        subject=row.public_id,
        reason=reason,
        detail={"vendor": row.vendor, "model": row.vendor_model, "version": row.version},
    )
