"""The chart above the list, and the same numbers as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gateway.exchanges.tallies import Bucket, Tally
from gateway.templatetags.drawings import Bar
from gateway.web.periods import DAY, DAY_S, HOUR_S, Period

NOTHING = Tally(total=0, running=0, not_charged=0, at_estimate=0, charged_nanos=0)
LABEL_HOURS = 3
DAYS_LABELLED_EACH = 14
MONDAY = 0


@dataclass(frozen=True, slots=True)
class Chart:
    """`buckets` are those that have any request; `bars` are all of the period."""

    bars: tuple[Bar, ...]
    buckets: tuple[Bucket, ...]
    total: Tally
    step_words: str


def chart_of(period: Period, buckets: Sequence[Bucket]) -> Chart:
    found = {bucket.start: bucket.tally for bucket in buckets}
    step = timedelta(seconds=period.step_s)
    starts = []
    # Steps are whole multiples from 1970 on, and so may the first begin before the period.
    start = _floor(period.since, period.step_s)
    while start < period.until:
        starts.append(start)
        start += step
    return Chart(
        bars=tuple(_bar(start, found.get(start, NOTHING), period) for start in starts),
        buckets=tuple(buckets),
        total=_sum([bucket.tally for bucket in buckets]),
        step_words=_step_words(period.step_s),
    )


def _sum(tallies: Sequence[Tally]) -> Tally:
    return Tally(
        total=sum(tally.total for tally in tallies),
        running=sum(tally.running for tally in tallies),
        not_charged=sum(tally.not_charged for tally in tallies),
        at_estimate=sum(tally.at_estimate for tally in tallies),
        charged_nanos=sum(tally.charged_nanos for tally in tallies),
    )


def _bar(start: datetime, tally: Tally, period: Period) -> Bar:
    return Bar(
        label=_label(start, period),
        title=_title(start, tally, period) if tally.total else "",
        parts=(
            ("c2", tally.at_vendor_usage),
            ("info", tally.at_estimate),
            ("bad", tally.not_charged),
            ("c4", tally.running),
        ),
    )


def _label(start: datetime, period: Period) -> str:
    """Hours of a day; days of two weeks; Mondays of more."""
    if period.until - period.since <= DAY:
        is_labelled = start.minute == 0 and start.hour % LABEL_HOURS == 0
        return f"{start:%H:%M}" if is_labelled else ""
    if start.hour:
        return ""
    is_short = (period.until - period.since) <= DAYS_LABELLED_EACH * DAY
    return f"{start.day} {start:%b}" if is_short or start.weekday() == MONDAY else ""


def _title(start: datetime, tally: Tally, period: Period) -> str:
    moment = f"{start:%H:%M}" if period.until - period.since <= DAY else f"{start:%Y-%m-%d %H:%M}"
    return (
        f"{moment}: {tally.total:,} requests, {tally.at_estimate:,} at estimate, "
        f"{tally.not_charged:,} failed or refused"
    )


def _step_words(step_s: int) -> str:
    if step_s < HOUR_S:
        return "quarter of an hour"
    if step_s < DAY_S:
        return f"{step_s // HOUR_S} hours"
    return "day" if step_s == DAY_S else f"{step_s // DAY_S} days"


def _floor(moment: datetime, step_s: int) -> datetime:
    beyond_s = int(moment.timestamp()) % step_s
    return moment - timedelta(seconds=beyond_s)
