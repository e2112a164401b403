"""What a tenant lets us keep of what was said, and for how long."""

from typing import Final

from django.db import transaction

from keys.errors import BadTranscriptChoice
from keys.models import AuditAction, Tenant, TranscriptPolicy
from keys.services import REASON_LENGTH_MAX, record

DAYS_MIN: Final = 1
DAYS_MAX: Final = 365


def set_transcripts(
    tenant: Tenant, policy: str, days: int, *, actor: str, reason: str = ""
) -> None:
    """Say what is kept from now on. Fewer days are true of what was kept before as well.

    Raises BadTranscriptChoice.
    """
    if policy not in TranscriptPolicy.values:
        raise BadTranscriptChoice(f"There is no policy {policy!r}.")
    if not DAYS_MIN <= days <= DAYS_MAX:
        raise BadTranscriptChoice(f"Keep them for {DAYS_MIN} to {DAYS_MAX} days.")
    with transaction.atomic():
        before = Tenant.objects.select_for_update().get(pk=tenant.pk)
        was = {"policy": before.transcript_policy, "days": before.transcript_days}
        becomes = {"policy": str(policy), "days": days}
        if was == becomes:
            return
        tenant.transcript_policy, tenant.transcript_days = policy, days
        tenant.save(update_fields=["transcript_policy", "transcript_days"])
        record(
            AuditAction.TENANT_TRANSCRIPTS_SET,
            tenant_id=tenant.pk,
            actor=actor,
            subject=tenant.slug,
            reason=reason[:REASON_LENGTH_MAX],
            detail={"from": was, "to": becomes},
        )
