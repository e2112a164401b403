"""How vendors have answered lately: a bounded look at the newest exchanges of all tenants."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from statistics import median
from typing import Any, Final

from billing.models import Exchange
from gateway.exchanges.legs import is_for_staff
from gateway.exchanges.selectors import first_id_at

HEALTH_EXCHANGES: Final = 1_000
HEALTH_PERIOD: Final = timedelta(hours=3)
BUSY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})

Attempt = dict[str, Any]


@dataclass(frozen=True, slots=True)
class VendorHealth:
    """Of the calls that went to a vendor; `first_byte_ms` is a median, None where none came.

    What a client can cause, any 4xx that is not about us, is no failure.
    """

    calls: int
    failed: int
    first_byte_ms: float | None


def vendor_health(now: datetime) -> dict[str, VendorHealth]:
    """By the vendor's name, of the newest HEALTH_EXCHANGES within HEALTH_PERIOD, tests left out."""
    newest = (
        Exchange.objects.filter(id__gte=first_id_at(now - HEALTH_PERIOD))
        .order_by("-id")
        .values_list("is_test", "attempts")[:HEALTH_EXCHANGES]
    )
    calls: dict[str, list[Attempt]] = defaultdict(list)
    for name, attempt in _calls(attempts for is_test, attempts in newest if not is_test):
        calls[name].append(attempt)
    return {name: _health(of_vendor) for name, of_vendor in calls.items()}


def _calls(found: Iterable[list[Attempt]]) -> Iterator[tuple[str, Attempt]]:
    for attempts in found:
        for attempt in attempts:
            if "vendor" in attempt:
                yield attempt["vendor"], attempt


def _health(calls: list[Attempt]) -> VendorHealth:
    waits_ms = [
        attempt["first_byte_ms"] - attempt["started_ms"]
        for attempt in calls
        if "first_byte_ms" in attempt and "started_ms" in attempt
    ]
    return VendorHealth(
        calls=len(calls),
        failed=sum(map(_has_failed, calls)),
        first_byte_ms=median(waits_ms) if waits_ms else None,
    )


def _has_failed(attempt: Attempt) -> bool:
    """Without a status and an error, the client left before there was an answer."""
    status = attempt.get("status")
    if status is None or status < HTTPStatus.BAD_REQUEST:
        return "error" in attempt
    return is_for_staff(status) or status in BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR
