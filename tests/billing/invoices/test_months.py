from datetime import UTC, date, datetime

import pytest

from billing.invoices.months import month_before, month_of


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("zone", "starts", "ends"),
    [
        ("UTC", (3, 1, 0), (4, 1, 0)),
        ("Europe/Berlin", (2, 28, 23), (3, 31, 22)),  # the clocks change in between
        ("Pacific/Kiritimati", (2, 28, 10), (3, 31, 10)),
        ("America/Los_Angeles", (3, 1, 8), (4, 1, 7)),
    ],
)
def test_a_month_is_the_time_zones(zone: str, starts, ends) -> None:
    month = month_of(date(2026, 3, 1), zone)
    assert month.starts_at == datetime(2026, *starts, tzinfo=UTC)
    assert month.ends_at == datetime(2026, *ends, tzinfo=UTC)


def test_the_month_before_january_is_december() -> None:
    assert month_before(date(2027, 1, 31)) == date(2026, 12, 1)
    assert month_before(date(2027, 3, 1)) == date(2027, 2, 1)
