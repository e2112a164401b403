"""What the checks of a vendor have cost there, and what they may cost in a day."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, Q, Sum

from gateway.models import CheckJob, Vendor, VendorCheck
from gateway.qualification.bounds import DEFAULT_BOUNDS, Bounds

DAY: Final = timedelta(days=1)
DAY_TOKENS: Final = 100_000  # of each vendor, all of its models together


def spent_by_vendor(vendors: Iterable[Vendor], now: datetime) -> dict[int, int]:
    """Tokens of the last 24 hours' checks, whoever made them, by the vendor's key.

    A check that waits, runs or was cut off counts as the most that a run may cost.
    """
    vendors = list(vendors)
    kept = VendorCheck.objects.filter(vendor__in=vendors, started_at__gt=now - DAY)
    jobs = CheckJob.objects.filter(
        Q(finished_at=None) | Q(problem__gt="", started_at__isnull=False),
        vendor__in=vendors,
        asked_at__gt=now - DAY,
    )
    spent: Counter[int] = Counter()
    for pk, tokens in kept.order_by().values_list("vendor_id").annotate(Sum("spent_tokens")):
        spent[pk] += tokens
    for pk, count in jobs.order_by().values_list("vendor_id").annotate(Count("pk")):
        spent[pk] += count * DEFAULT_BOUNDS.tokens
    return dict(spent)


def spent_tokens(vendor: Vendor, now: datetime) -> int:
    return spent_by_vendor([vendor], now).get(vendor.pk, 0)


def may_spend(vendor: Vendor, now: datetime, bounds: Bounds = DEFAULT_BOUNDS) -> bool:
    """Whether one more run keeps the vendor within its daily cost."""
    return spent_tokens(vendor, now) + bounds.tokens <= DAY_TOKENS
