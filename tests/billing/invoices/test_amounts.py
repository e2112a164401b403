"""Lines and totals: exact whatever the numbers, against fractions."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from billing.invoices.amounts import Part, Rounded, lines_of, rounded
from billing.models import LineKind
from billing.money import NANOS_PER_CENT, TOKENS_PER_PRICE, price_of
from billing.rating import TOKEN_CLASSES

NANOS = st.integers(-(10**18), 10**18)
UNITS = st.integers(0, 10**13)
TOKENS = st.integers(0, 10**7)
EXCHANGES = st.lists(st.tuples(*[TOKENS] * len(TOKEN_CLASSES)), min_size=1, max_size=8)


def a_part(exchanges, units, per_request: int = 0, short: int = 0) -> Part:
    """What the exchanges add up to, each charged line by line as they are."""
    cost = sum(sum(map(price_of, tokens, units)) + per_request for tokens in exchanges)
    sums = [sum(column) for column in zip(*exchanges, strict=True)]
    return Part(
        number=1,
        model="m",
        price_id=1,
        terms_id=None,
        above_prompt_tokens=None,
        units=dict(zip(TOKEN_CLASSES, units, strict=True)),
        per_request_nanos=per_request,
        exchange_count=len(exchanges),
        charge_nanos=cost - min(short, cost),
        shortfall_nanos=min(short, cost),
        quantities=dict(zip(TOKEN_CLASSES, sums, strict=True)),
        counts=dict.fromkeys(TOKEN_CLASSES, len(exchanges)),
    )


@given(exact=NANOS)
def test_a_document_rounds_once_to_a_cent_and_loses_nothing(exact: int) -> None:
    result = rounded(exact)
    assert result.total_nanos % NANOS_PER_CENT == 0
    assert result.total_nanos + result.carried_out_nanos == exact
    if exact >= 0:
        assert -NANOS_PER_CENT <= 2 * result.carried_out_nanos < NANOS_PER_CENT


@given(months=st.lists(NANOS, max_size=24))
def test_totals_and_the_last_remainder_are_all_that_was_charged(months: list[int]) -> None:
    carried, asked = 0, 0
    for net in months:
        result = rounded(net + carried)
        asked, carried = asked + result.total_nanos, result.carried_out_nanos
    assert asked + carried == sum(months)


def test_a_sum_below_zero_makes_a_document_of_nothing_and_is_carried_on() -> None:
    assert rounded(-3 * NANOS_PER_CENT) == Rounded(0, -3 * NANOS_PER_CENT)
    assert rounded(NANOS_PER_CENT // 2) == Rounded(NANOS_PER_CENT, -NANOS_PER_CENT // 2)
    assert rounded(NANOS_PER_CENT // 2 - 1) == Rounded(0, NANOS_PER_CENT // 2 - 1)


@given(
    exchanges=EXCHANGES,
    units=st.tuples(*[UNITS] * len(TOKEN_CLASSES)),
    per_request=st.integers(0, 10**9),
    short=st.integers(0, 10**12),
)
def test_lines_are_quantity_by_price_and_add_up_to_the_charges(
    exchanges, units, per_request: int, short: int
) -> None:
    part = a_part(exchanges, units, per_request, short)
    lines = lines_of(part)
    assert sum(line.amount_nanos for line in lines) == part.charge_nanos
    rounding = 0
    for line in lines:
        if line.kind == LineKind.USAGE:
            exact = Fraction(line.quantity * line.unit_nanos, TOKENS_PER_PRICE)
            assert abs(exact - line.amount_nanos) <= Fraction(1, 2)
            assert line.quantity == part.quantities[line.dimension] > 0
        if line.kind == LineKind.ROUNDING:
            rounding = line.amount_nanos
    # Half a nano for each line of each charge, and half for each line of the invoice.
    assert abs(rounding) <= len(TOKEN_CLASSES) * (len(exchanges) + 1) / 2


def test_what_was_rounded_charge_by_charge_is_a_line_of_its_own() -> None:
    """Three charges of half a nano are three nanos, and one and a half on the invoice."""
    tokens = (1, *[0] * (len(TOKEN_CLASSES) - 1))
    lines = lines_of(a_part([tokens] * 3, [500_000] * len(TOKEN_CLASSES)))
    assert [(line.words, line.amount_nanos) for line in lines] == [
        ("m input", 2),
        ("m rounding of each charge, half up", 1),
    ]


def test_without_a_price_there_is_one_line_that_counts_requests() -> None:
    part = Part(9, "", None, None, None, None, 0, 4, 0, 0, {}, {})
    (line,) = lines_of(part)
    assert (line.kind, line.quantity, line.amount_nanos) == (LineKind.UNCHARGED, 4, 0)
