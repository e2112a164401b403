from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.web.periods import BARS_MAX, DAY, STEPS_S, period_of

NOW = datetime(2026, 12, 1, 14, 20, 5, tzinfo=UTC)


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "since", "until", "words"),
    [
        ("today", at(2026, 12, 1), at(2026, 12, 2), "00:00 – now, UTC"),
        ("yesterday", at(2026, 11, 30), at(2026, 12, 1), "30 Nov 2026"),
        ("7d", at(2026, 11, 25), at(2026, 12, 2), "25 Nov 2026 – now, UTC"),
        ("month", at(2026, 12, 1), at(2027, 1, 1), "1 Dec 2026 – now, UTC"),
        ("last-month", at(2026, 11, 1), at(2026, 12, 1), "1 Nov 2026 – 30 Nov 2026, UTC"),
    ],
)
def test_presets_are_whole_days(name, since, until, words):
    period = period_of(name, NOW)
    assert (period.since, period.until, period.words(NOW)) == (since, until, words)


def test_own_days_include_both_ends():
    period = period_of("custom", NOW, "2026-02-01", "2026-02-28")
    assert (period.since, period.until) == (at(2026, 2, 1), at(2026, 3, 1))
    assert period.last_day == date(2026, 2, 28)


def test_one_day_is_enough():
    assert period_of("custom", NOW, "2026-02-01").until == at(2026, 2, 2)


@pytest.mark.parametrize(
    ("since", "until"), [("", ""), ("x", "y"), ("2026-02-02", "2026-02-01"), ("9999-12-31", "")]
)
def test_days_that_cannot_be_are_today(since, until):
    assert period_of("custom", NOW, since, until) == period_of("today", NOW)


def test_a_name_that_there_is_not_is_today():
    assert period_of("for ever", NOW).name == "today"


@settings(deadline=None)
@given(st.dates(date(1, 1, 1), date(9999, 12, 30)), st.integers(0, 2_000))
def test_a_chart_has_few_bars_or_the_longest_step(first, days):
    last = min(first + timedelta(days=min(days, (date(9999, 12, 30) - first).days)), date.max)
    period = period_of("custom", NOW, first.isoformat(), last.isoformat())
    bars = (period.until - period.since) / timedelta(seconds=period.step_s)
    assert bars <= BARS_MAX or period.step_s == STEPS_S[-1]
    assert period.until - period.since >= DAY
