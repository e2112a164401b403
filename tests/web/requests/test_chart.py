from datetime import UTC, datetime

from gateway.exchanges.tallies import Bucket, Tally
from gateway.web.periods import period_of
from gateway.web.requests.chart import chart_of

NOW = datetime(2026, 12, 1, 14, 20, 5, tzinfo=UTC)


def bucket(hour: int, minute: int, total: int, **more: int) -> Bucket:
    usual = {"running": 0, "not_charged": 0, "at_estimate": 0, "charged_nanos": 0}
    return Bucket(datetime(2026, 12, 1, hour, minute, tzinfo=UTC), Tally(total, **usual | more))


def test_a_day_has_a_bar_each_quarter_and_a_label_each_three_hours():
    chart = chart_of(period_of("today", NOW), [])
    assert len(chart.bars) == 96
    assert [bar.label for bar in chart.bars if bar.label] == [
        f"{hour:02d}:00" for hour in range(0, 24, 3)
    ]
    assert chart.step_words == "quarter of an hour"


def test_parts_of_a_bar_add_up_to_its_requests():
    chart = chart_of(
        period_of("today", NOW), [bucket(1, 15, 10, running=1, not_charged=2, at_estimate=3)]
    )
    bar = chart.bars[5]
    assert bar.parts == (("c2", 4), ("info", 3), ("bad", 2), ("c4", 1))
    assert bar.title == "01:15: 10 requests, 3 at estimate, 2 failed or refused"
    assert {bar.title for number, bar in enumerate(chart.bars) if number != 5} == {""}


def test_the_total_is_the_sum_of_the_bars():
    chart = chart_of(
        period_of("today", NOW),
        [bucket(1, 0, 2, charged_nanos=7), bucket(9, 45, 3, at_estimate=1, charged_nanos=8)],
    )
    assert chart.total == Tally(5, 0, 0, 1, 15)
    assert sum(value for bar in chart.bars for _, value in bar.parts) == chart.total.total


def test_a_week_has_its_days_and_a_month_its_mondays():
    week = chart_of(period_of("7d", NOW), [])
    assert (len(week.bars), week.step_words) == (84, "2 hours")
    assert [bar.label for bar in week.bars if bar.label][:2] == ["25 Nov", "26 Nov"]
    month = chart_of(period_of("month", NOW), [])
    assert (len(month.bars), month.step_words) == (93, "8 hours")
    assert [bar.label for bar in month.bars if bar.label] == ["7 Dec", "14 Dec", "21 Dec", "28 Dec"]


def test_long_steps_begin_before_the_period_where_they_must():
    chart = chart_of(period_of("custom", NOW, "2025-01-01", "2026-06-30"), [])
    assert chart.step_words == "7 days"
    assert len(chart.bars) in {78, 79}
