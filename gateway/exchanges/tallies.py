"""How many exchanges a filter finds, of which kind, over time: what stands above the list."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from billing.models import UsageSource
from billing.usage import COMPLETION_ESTIMATED, PROMPT_ESTIMATED
from gateway.exchanges.selectors import ERROR_OUTCOMES, ExchangeFilters, filtered

COUNT_MAX = 100_000
"""Rows that are looked at, newest first; beyond that a count is "at least"."""

# The same kinds that ExchangeRow.status tells apart, as the four colours of a chart.
_KINDS = """
    count(*) AS total,
    count(*) FILTER (WHERE c.exchange_id IS NULL) AS running,
    count(*) FILTER (WHERE c.outcome = ANY (%s) AND c.charge_nanos = 0) AS not_charged,
    count(*) FILTER (WHERE NOT (c.outcome = ANY (%s) AND c.charge_nanos = 0)
                       AND (c.usage_source = %s OR c.flags ?| %s)) AS at_estimate,
    coalesce(sum(c.charge_nanos), 0)::bigint AS charged_nanos
"""
_KIND_PARAMETERS = (
    list(ERROR_OUTCOMES),
    list(ERROR_OUTCOMES),
    str(UsageSource.ESTIMATE),
    [PROMPT_ESTIMATED, COMPLETION_ESTIMATED],
)


@dataclass(frozen=True, slots=True)
class Tally:
    """`at_vendor_usage`, `at_estimate`, `not_charged` and `running` add up to `total`."""

    total: int
    running: int
    not_charged: int
    at_estimate: int
    charged_nanos: int

    @property
    def at_vendor_usage(self) -> int:
        return self.total - self.running - self.not_charged - self.at_estimate

    @property
    def is_capped(self) -> bool:
        """True if there are more than were counted."""
        return self.total > COUNT_MAX


@dataclass(frozen=True, slots=True)
class Bucket:
    start: datetime
    tally: Tally


def count_exchanges(tenant_id: int, filters: ExchangeFilters) -> Tally:
    (row,) = _tally(tenant_id, filters, "")
    return Tally(*row)


def histogram(tenant_id: int, filters: ExchangeFilters, *, step_s: int) -> list[Bucket]:
    """Return the steps that have any, oldest first; each starts at a whole multiple of `step_s`."""
    bucket = f"floor(extract(epoch FROM e.created_at) / {step_s:d})::bigint * {step_s:d}"
    rows = _tally(tenant_id, filters, bucket)
    return [Bucket(datetime.fromtimestamp(row[0], UTC), Tally(*row[1:])) for row in rows]


def _tally(tenant_id: int, filters: ExchangeFilters, bucket: str) -> list[tuple[Any, ...]]:
    newest = filtered(tenant_id, filters).order_by("-id").values("id", "created_at")
    inner, inner_parameters = newest[: COUNT_MAX + 1].query.sql_with_params()
    column, grouping = (f"{bucket} AS bucket,", "GROUP BY 1 ORDER BY 1") if bucket else ("", "")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {column} {_KINDS} FROM ({inner}) e"  # noqa: S608  # parts of this module only
            " LEFT JOIN billing_charge c ON c.exchange_id = e.id AND c.tenant_id = %s"
            f" {grouping}",
            [*_KIND_PARAMETERS, *inner_parameters, tenant_id],
        )
        return list(cursor.fetchall())
