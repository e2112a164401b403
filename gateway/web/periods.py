"""Stretches of time that a page can be asked for, in UTC: whole days, since midnight."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

DAY = timedelta(days=1)
TODAY = "today"
YESTERDAY = "yesterday"
WEEK = "7d"
MONTH = "month"
LAST_MONTH = "last-month"
CUSTOM = "custom"
NAMES = {
    TODAY: "Today",
    YESTERDAY: "Yesterday",
    WEEK: "Last 7 days",
    MONTH: "This month",
    LAST_MONTH: "Last month",
}

MINUTE_S = 60
HOUR_S = 60 * MINUTE_S
DAY_S = 24 * HOUR_S
STEPS_S = (15 * MINUTE_S, 2 * HOUR_S, 8 * HOUR_S, DAY_S, 7 * DAY_S, 28 * DAY_S)
BARS_MAX = 96


@dataclass(frozen=True, slots=True)
class Period:
    """`since` ≤ moment < `until`, both midnights in UTC."""

    name: str
    since: datetime
    until: datetime

    @property
    def label(self) -> str:
        return NAMES.get(self.name, "Custom")

    @property
    def last_day(self) -> date:
        return (self.until - DAY).date()

    @property
    def step_s(self) -> int:
        """How long one bar of a chart lasts: the shortest of `STEPS_S` that needs few bars."""
        span_s = (self.until - self.since).total_seconds()
        return next((step for step in STEPS_S if span_s / step <= BARS_MAX), STEPS_S[-1])

    def words(self, now: datetime) -> str:
        """`00:00 – now` on this day, else the days."""
        if self.name == TODAY:
            return "00:00 – now, UTC"
        if self.since.date() == self.last_day:
            return _day(self.since.date())
        last = "now" if self.since <= now < self.until else _day(self.last_day)
        return f"{_day(self.since.date())} – {last}, UTC"


def period_of(name: str, now: datetime, since: str = "", until: str = "") -> Period:
    """Return the named period; today for a name that there is not, or days that cannot be."""
    today = midnight(now.date())
    month = today.replace(day=1)
    starts = {
        YESTERDAY: (today - DAY, today),
        WEEK: (today - 6 * DAY, today + DAY),
        MONTH: (month, next_month(month)),
        LAST_MONTH: ((month - DAY).replace(day=1), month),
    }
    if name == CUSTOM:
        days = _days(since, until)
        if days is not None:
            return Period(CUSTOM, midnight(days[0]), midnight(days[1]) + DAY)
    if name in starts:
        return Period(name, *starts[name])
    return Period(TODAY, today, today + DAY)


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def next_month(first: datetime) -> datetime:
    return (first + 31 * DAY).replace(day=1)


def _days(since: str, until: str) -> tuple[date, date] | None:
    try:
        first = date.fromisoformat(since)
        last = date.fromisoformat(until) if until else first
    except ValueError:
        return None
    # The last day of all has no day after it.
    return (first, last) if first <= last < date.max else None


def _day(day: date) -> str:
    return f"{day.day} {day:%b %Y}"
