"""Months, as a tenant has them: in its own time zone."""

from dataclasses import dataclass
from datetime import UTC, date, datetime

from billing.limits import period_at
from billing.models import LimitPeriod

_MIDDLE_DAY = 15  # in every time zone, this day's noon in UTC is of its month


@dataclass(frozen=True, slots=True)
class Month:
    """`starts_at` ≤ moment < `ends_at`; `first` is its first day, by the calendar."""

    first: date
    time_zone: str
    starts_at: datetime
    ends_at: datetime


def month_of(first: date, time_zone: str) -> Month:
    middle = datetime(first.year, first.month, _MIDDLE_DAY, 12, tzinfo=UTC)
    starts_at, ends_at = period_at(LimitPeriod.MONTH, middle, time_zone)
    if ends_at is None:
        raise ValueError("A month ends.")
    return Month(first, time_zone, starts_at, ends_at)


def month_before(day: date) -> date:
    """The first day of the month before this day's."""
    return date(day.year - (day.month == 1), (day.month - 2) % 12 + 1, 1)
