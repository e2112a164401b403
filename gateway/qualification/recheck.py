"""Checking again on a schedule, within a daily cost for each vendor."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from gateway.models import Qualification, Vendor, VendorCheck
from gateway.qualification.bounds import DEFAULT_BOUNDS, Bounds
from gateway.qualification.checks import Subject
from gateway.qualification.gate import VendorState, state_of
from gateway.qualification.report import Labels, report_of
from gateway.qualification.run import check_vendor
from gateway.qualification.standing import keep, latest_checks, subjects_of
from gateway.runtime.snapshot import access_of

CHECK_EVERY: Final = timedelta(hours=24)
RETRY_EVERY: Final = timedelta(hours=1)  # of what is not qualified, or did not pass last time
DAY: Final = timedelta(days=1)
DAY_TOKENS: Final = 100_000  # of each vendor, all of its models together
RECHECK_LOCK: Final = 0x0072_6563_6865_636B  # one at a time; the number spells "recheck"


def recheck_due(*, bounds: Bounds = DEFAULT_BOUNDS) -> int:
    """Check the one model that has waited longest; return how many were checked: 0 or 1.

    Blocks for `bounds.run_s` at most. Vendors that need no qualification, that people have
    disabled or that have cost enough today are left alone. Two at a time are one.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [RECHECK_LOCK])
        (is_ours,) = cursor.fetchone()
        if not is_ours:
            return 0
        try:
            return _recheck(bounds, timezone.now())
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [RECHECK_LOCK])


def _recheck(bounds: Bounds, now: datetime) -> int:
    due = sorted(_due(bounds, now), key=lambda found: found[0])
    if not due:
        return 0
    _, vendor, subject = due[0]
    outcome = check_vendor(access_of(vendor), subject, bounds=bounds)
    keep(vendor, outcome, report_of(outcome, Labels(), credential=vendor.credential))
    return 1


def _due(bounds: Bounds, now: datetime) -> Iterator[tuple[datetime, Vendor, Subject]]:
    """Each with the moment from which it is due."""
    vendors = Vendor.objects.filter(
        is_active=True, disabled_at=None, qualification=Qualification.REQUIRED
    )
    for vendor in vendors.order_by("pk"):
        if spent_tokens(vendor, now) + bounds.tokens > DAY_TOKENS:
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


def spent_tokens(vendor: Vendor, now: datetime) -> int:
    """What the vendor's checks of the last 24 hours have cost, whoever made them."""
    recent = VendorCheck.objects.filter(vendor=vendor, started_at__gt=now - DAY)
    return recent.aggregate(total=Sum("spent_tokens"))["total"] or 0
