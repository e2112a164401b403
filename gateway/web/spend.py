"""What keys have spent: sums of the very charges that the list of requests shows."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Sum

from gateway.exchanges.selectors import ExchangeFilters, filtered
from gateway.web.periods import Period


@dataclass(frozen=True, slots=True)
class KeySpend:
    """Of one key in a period. `last_at` is when its last request arrived."""

    nanos: int
    last_at: datetime


def spend_by_key(tenant_id: int, period: Period, *, is_test: bool) -> dict[int, KeySpend]:
    """Return it by key id, of requests that began in the period; unused keys are not in it."""
    filters = ExchangeFilters(is_test=is_test, since=period.since, until=period.until)
    sums = (
        filtered(tenant_id, filters)
        .values("key_id")
        .annotate(nanos=Sum("charge__charge_nanos"), last_at=Max("created_at"))
        .order_by("key_id")
    )
    return {row["key_id"]: KeySpend(int(row["nanos"] or 0), row["last_at"]) for row in sums}
