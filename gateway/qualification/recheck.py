"""Checking again on a schedule, within a daily cost for each vendor."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from gateway.models import Qualification, Vendor, VendorCheck
from gateway.qualification.asking import make_waiting, oldest_waiting
from gateway.qualification.bounds import DEFAULT_BOUNDS, Bounds
from gateway.qualification.checks import Subject
from gateway.qualification.cost import may_spend
from gateway.qualification.gate import VendorState, state_of
from gateway.qualification.making import alone, checked
from gateway.qualification.standing import keep, latest_checks, subjects_of

CHECK_EVERY: Final = timedelta(hours=24)
RETRY_EVERY: Final = timedelta(hours=1)  # of what is not qualified, or did not pass last time


def recheck_due(*, bounds: Bounds = DEFAULT_BOUNDS) -> int:
    """Make one check; return how many were made: 0 or 1.

    First what somebody asked for and no task has made; then of the one model that has waited
    longest. Blocks for `bounds.run_s` at most. Vendors that need no qualification, that people
    have disabled or that have cost enough today are left alone. Two at a time are one.
    """
    with alone() as is_ours:
        if not is_ours:
            return 0
        job_id = oldest_waiting()
        if job_id is None:
            return _recheck(bounds, timezone.now())
        make_waiting(job_id, bounds=bounds)
        return 1


def _recheck(bounds: Bounds, now: datetime) -> int:
    due = sorted(_due(bounds, now), key=lambda found: found[0])
    if not due:
        return 0
    _, vendor, subject = due[0]
    keep(vendor, *checked(vendor, subject, bounds))
    return 1


def _due(bounds: Bounds, now: datetime) -> Iterator[tuple[datetime, Vendor, Subject]]:
    """Each with the moment from which it is due."""
    vendors = Vendor.objects.filter(
        is_active=True, disabled_at=None, qualification=Qualification.REQUIRED
    )
    for vendor in vendors.order_by("pk"):
        if not may_spend(vendor, now, bounds):
            continue
        latest = {check.vendor_model: check for check in latest_checks(vendor)}
        for subject in subjects_of(vendor):
            due_at = _due_at(vendor, latest.get(subject.model))
            if due_at <= now:
                yield due_at, vendor, subject


def _due_at(vendor: Vendor, latest: VendorCheck | None) -> datetime:
    if latest is None:
        return vendor.created_at
    is_well = latest.passed and state_of(vendor) is VendorState.QUALIFIED
    return latest.finished_at + (CHECK_EVERY if is_well else RETRY_EVERY)
