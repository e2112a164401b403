from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.money import (
    NANOS_MAX,
    NotMoney,
    at_factor,
    nanos_from_text,
    price_of,
    text_from_nanos,
)


def half_up(exact: Fraction) -> int:
    return (exact + Fraction(1, 2)).__floor__()


@given(st.integers(-NANOS_MAX, NANOS_MAX))
def test_an_amount_survives_its_text(nanos: int) -> None:
    assert nanos_from_text(text_from_nanos(nanos)) == nanos


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("0.000000001", 1),
        ("-12.5", -12_500_000_000),
        ("1e-9", 1),
        ("1.0000000000000000000000000000000000000", 10**9),
        ("9223372036.854775807", NANOS_MAX),
    ],
)
def test_an_amount_is_read_exactly(text: str, nanos: int) -> None:
    assert nanos_from_text(text) == nanos


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ten",
        "nan",
        "inf",
        "0.0000000001",
        "1.00000000000000000000000000001",
        "0.12345678901234567890123456789012345",
        "9223372036.854775808",
        "1e11",
        "1e999999",
        "-1e999999999999999999",
    ],
)
def test_what_would_have_to_be_rounded_is_no_amount(text: str) -> None:
    with pytest.raises(NotMoney):
        nanos_from_text(text)


@given(st.text(alphabet="0123456789.-eE+", max_size=40))
def test_a_text_is_read_exactly_or_refused(text: str) -> None:
    try:
        nanos = nanos_from_text(text)
    except NotMoney:
        return
    assert Fraction(nanos, 10**9) == Fraction(Decimal(text))


@given(st.integers(0, 2**53), st.integers(0, 10**18))
def test_a_line_is_rounded_once_half_up(quantity: int, unit_nanos: int) -> None:
    assert price_of(quantity, unit_nanos) == half_up(Fraction(quantity * unit_nanos, 10**6))


@given(st.integers(0, 10**18), st.integers(0, 100_000))
def test_a_factor_is_applied_exactly_and_rounded_once(unit_nanos: int, factor_bps: int) -> None:
    assert at_factor(unit_nanos, factor_bps) == half_up(Fraction(unit_nanos * factor_bps, 10_000))
    assert at_factor(unit_nanos, 10_000) == unit_nanos
