from dataclasses import fields
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from billing.errors import IncompletePrice
from billing.models import Price
from billing.rating import (
    COMPLETION_CLASSES,
    PROMPT_CLASSES,
    TOKEN_CLASSES,
    PriceVersion,
    Rates,
    Tier,
    cost_nanos,
    hold_nanos,
    rate,
    under,
    version_of,
)
from billing.usage import Usage

rate_nanos = st.integers(0, 10**6) | st.integers(0, 10**18)
rates = st.builds(Rates, **{f"{name}_nanos": rate_nanos for name in TOKEN_CLASSES})
tiers = st.lists(st.builds(Tier, st.integers(1, 3_000), rates), max_size=3).map(
    lambda found: tuple(sorted(found, key=lambda tier: tier.above_prompt_tokens))
)
versions = st.builds(
    PriceVersion,
    id=st.just(1),
    currency=st.just("USD"),
    rates=rates,
    per_request_nanos=st.integers(0, 10**9),
    tiers=tiers,
)
usages = st.builds(Usage, **{f"{name}_tokens": st.integers(0, 1_000) for name in TOKEN_CLASSES})


def a_version(**nanos: int) -> PriceVersion:
    price = {"model": "m", "currency": "USD", "input_nanos": 10**9, "output_nanos": 4 * 10**9}
    return version_of(Price(pk=1, **{**price, **nanos}))


def rates_by_hand(usage: Usage, version: PriceVersion) -> Rates:
    prompt = sum(getattr(usage, f"{name}_tokens") for name in PROMPT_CLASSES)
    found = version.rates
    for tier in version.tiers:
        if prompt > tier.above_prompt_tokens:
            found = tier.rates
    return found


def test_every_token_class_of_usage_is_priced() -> None:
    assert {field.name for field in fields(Usage)} == {f"{name}_tokens" for name in TOKEN_CLASSES}


@given(usages, versions)
def test_each_line_is_the_exact_product_rounded_once_half_up(
    usage: Usage, version: PriceVersion
) -> None:
    expected = rates_by_hand(usage, version)
    lines = {line.dimension: line for line in rate(usage, version)}
    for name in TOKEN_CLASSES:
        quantity = getattr(usage, f"{name}_tokens")
        exact = Fraction(quantity * getattr(expected, f"{name}_nanos"), 10**6)
        line = lines.pop(name, None)
        assert (line.nanos if line else 0) == (exact + Fraction(1, 2)).__floor__()
        assert line is None or Fraction(line.exact_micro_nanos, 10**6) == exact
        assert line is not None or quantity == 0
    request = lines.pop("request", None)
    assert (request.nanos if request else 0) == version.per_request_nanos
    assert lines == {}


@given(usages, versions)
def test_a_cost_is_the_sum_of_its_lines(usage: Usage, version: PriceVersion) -> None:
    assert cost_nanos(usage, version) == sum(line.nanos for line in rate(usage, version))


@given(usages, versions, st.integers(0, 500), st.integers(0, 500))
@example(
    Usage(*(1,) * 8),
    PriceVersion(1, "USD", Rates(*(500_000,) * 8)),
    0,
    0,
)
def test_a_hold_covers_whatever_so_many_tokens_turn_out_to_be(
    usage: Usage, version: PriceVersion, more_prompt: int, more_output: int
) -> None:
    prompt = usage.prompt_tokens + more_prompt
    output = usage.completion_tokens + more_output
    assert hold_nanos(prompt, output, version) >= cost_nanos(usage, version)


@given(versions)
def test_only_a_price_that_can_cost_nothing_needs_no_hold(version: PriceVersion) -> None:
    most = Usage(*(10**9,) * len(TOKEN_CLASSES))
    every_tier = [version, *(PriceVersion(1, "USD", tier.rates) for tier in version.tiers)]
    assert version.is_free == all(cost_nanos(most, tier) == 0 for tier in every_tier)
    assert version.is_free == (hold_nanos(10**9, 10**9, version) == 0)


def test_a_class_without_a_price_costs_what_its_side_costs() -> None:
    version = a_version(cached_input_nanos=0, audio_output_nanos=7)
    assert [version.rates.of(name) for name in PROMPT_CLASSES] == [10**9, 0, 10**9, 10**9, 10**9]
    assert [version.rates.of(name) for name in COMPLETION_CLASSES] == [4 * 10**9, 4 * 10**9, 7]


@pytest.mark.parametrize("missing", ["input_nanos", "output_nanos"])
def test_an_incomplete_price_is_no_price(missing: str) -> None:
    with pytest.raises(IncompletePrice):
        a_version(**{missing: None})


def test_a_tier_keeps_what_it_does_not_name_and_what_falls_back_follows_it() -> None:
    version = a_version(
        cache_write_nanos=5,
        tiers=[{"above_prompt_tokens": 10, "input_nanos": 2 * 10**9}],
    )
    long = version.rates_for(11)
    assert (long.input_nanos, long.cached_input_nanos, long.cache_write_nanos) == (
        2 * 10**9,
        2 * 10**9,
        5,
    )
    assert long.output_nanos == 4 * 10**9
    assert version.rates_for(10) == version.rates


def test_a_long_prompt_is_held_and_charged_by_its_tier_as_a_whole() -> None:
    version = a_version(tiers=[{"above_prompt_tokens": 200_000, "input_nanos": 2 * 10**9}])
    long = Usage(input_tokens=210_000, output_tokens=10)
    assert cost_nanos(long, version) == 420_040_000
    assert hold_nanos(210_000, 10, version) >= 420_040_000
    assert cost_nanos(Usage(input_tokens=200_000, output_tokens=10), version) == 200_040_000


def test_a_cheaper_tier_does_not_lower_the_hold_of_a_prompt_that_may_be_shorter() -> None:
    version = a_version(tiers=[{"above_prompt_tokens": 1_000, "input_nanos": 1}])
    assert hold_nanos(1_001, 0, version) >= cost_nanos(Usage(input_tokens=1_000), version)


def test_a_thousand_tiny_charges_add_up_to_what_they_are() -> None:
    version = a_version(input_nanos=20_000_000, output_nanos=0)
    assert sum(cost_nanos(Usage(input_tokens=3), version) for _ in range(1_000)) == 60_000


@given(versions, st.integers(0, 30_000))
def test_a_factor_makes_every_unit_price_anew_and_rounds_each_once(
    version: PriceVersion, factor_bps: int
) -> None:
    def expected(unit_nanos: int) -> int:
        return (Fraction(unit_nanos * factor_bps, 10_000) + Fraction(1, 2)).__floor__()

    made = under(version, 7, factor_bps)
    assert made.per_request_nanos == expected(version.per_request_nanos)
    assert [tier.above_prompt_tokens for tier in made.tiers] == [
        tier.above_prompt_tokens for tier in version.tiers
    ]
    pairs = [
        (version.rates, made.rates),
        *zip(
            (tier.rates for tier in version.tiers), (tier.rates for tier in made.tiers), strict=True
        ),
    ]
    for listed, under_terms in pairs:
        assert [under_terms.of(name) for name in TOKEN_CLASSES] == [
            expected(listed.of(name)) for name in TOKEN_CLASSES
        ]
    assert made.terms_id == (None if factor_bps == 10_000 else 7)
