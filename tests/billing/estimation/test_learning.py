from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.estimation.corrections import UNCHANGED, SideCorrection
from billing.estimation.learning import SAMPLE_MIN, Spread, is_drifting, learn, spread

COUNTS = [20 + 37 * index % 1_900 for index in range(80)]  # in no order, as a sample comes
NOISE = [(-1) ** index * (index % 3) for index in range(80)]


def pairs(per_mille: int, offset: int, counts=COUNTS, noise=NOISE) -> list[tuple[int, int]]:
    """What a vendor reports that counts so, a token or two beside it."""
    return [
        (count, max(count * per_mille // 1000 + offset + off, 1))
        for count, off in zip(counts, noise, strict=False)
    ]


def test_a_count_that_is_right_is_left_alone() -> None:
    assert learn(pairs(1_000, 0), UNCHANGED) is None
    assert learn([(count, count) for count in COUNTS], UNCHANGED) is None


def test_hidden_text_before_every_prompt_is_an_offset() -> None:
    found = learn(pairs(1_000, 240), UNCHANGED)
    assert found is not None
    assert found.per_mille == 1_000
    assert abs(found.offset - 240) <= 2


def test_another_vocabulary_is_a_factor() -> None:
    found = learn(pairs(1_270, 0), UNCHANGED)
    assert found is not None
    assert (abs(found.per_mille - 1_270) <= 15, found.offset) == (True, 0)


def test_both_are_found_together() -> None:
    found = learn(pairs(1_400, -15), UNCHANGED)
    assert found is not None
    assert abs(found.per_mille - 1_400) <= 15
    assert abs(found.of(1_000) - 1_385) <= 15


def test_a_few_wild_exchanges_bend_nothing() -> None:
    wild = [(100, 90_000), (1_500, 3), (700, 70_000), (900, 5)]
    found = learn([*pairs(1_270, 0), *wild], UNCHANGED)
    assert found is not None
    assert abs(found.of(1_000) - 1_270) <= 15


def test_too_few_pairs_teach_nothing() -> None:
    assert learn(pairs(1_270, 0)[: SAMPLE_MIN - 1], UNCHANGED) is None
    assert learn([], UNCHANGED) is None


def test_what_is_in_force_already_is_not_proposed_again() -> None:
    assert learn(pairs(1_270, 0), SideCorrection(1_270, 0)) is None


def test_a_correction_that_is_out_of_date_is_learnt_away() -> None:
    assert learn(pairs(1_000, 0), SideCorrection(1_270, 0)) == UNCHANGED


def test_a_vendor_that_invents_is_no_lesson() -> None:
    assert learn([(count, count * 40) for count in COUNTS], UNCHANGED) is None
    assert learn([(100, 1 + 997 * index % 5_000) for index in range(80)], UNCHANGED) is None


def test_the_spread_is_of_the_corrected_counts() -> None:
    sample = [(100, 130), (200, 260), (300, 390), (400, 390)]
    assert spread(sample) == Spread(
        sample_size=4,
        median_error=Decimal("0.2308"),
        p95_error=Decimal("0.2308"),
        bias=Decimal("0.3000"),
    )
    corrected = spread(sample, SideCorrection(1_300, 0))
    assert corrected is not None
    assert (corrected.median_error, corrected.p95_error) == (0, Decimal("0.3333"))
    assert spread([]) is None


@pytest.mark.parametrize(
    ("bias", "size", "earlier", "expected", "flagged"),
    [
        ("0.05", 40, [], "0", True),  # an exact count, and five percent more reported
        ("0.02", 40, [], "0", False),
        ("0.05", 29, [], "0", False),  # too few
        ("0.20", 40, [], "0.20", False),  # our count is known to be so far off
        ("0.24", 40, [], "0.20", True),
        ("0.50", 40, [], None, False),  # nobody knows what to expect
        ("0.25", 40, ["0.20"] * 3, None, True),  # but it was less before
        ("0.21", 40, ["0.20"] * 3, "0", False),  # as ever
        ("-0.30", 40, [], "0", False),  # less than ours costs nobody
        ("0.02", 40, ["-0.30"] * 3, "0", False),  # back to right from below is no drift
    ],
)
def test_a_vendor_that_reports_more_than_usual_is_flagged(
    bias, size, earlier, expected, flagged
) -> None:
    now = Spread(size, Decimal("0.1"), Decimal("0.2"), Decimal(bias))
    before = [Decimal(value) for value in earlier]
    error = None if expected is None else Decimal(expected)
    assert is_drifting(now, before, error) is flagged


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=90))
def test_any_sample_gives_a_bounded_correction_that_is_no_worse(sample) -> None:
    found = learn(sample, UNCHANGED)
    assert spread(sample) is None or spread(sample).median_error >= 0
    if found is not None:
        assert 250 <= found.per_mille <= 4_000
        assert abs(found.offset) <= 10_000
        assert all(found.of(count) >= 0 for count, _ in sample)


@given(st.integers(0, 10**7), st.integers(250, 4_000), st.integers(-10_000, 10_000))
def test_of_nothing_it_is_nothing_and_a_bound_stays_one(tokens, per_mille, offset) -> None:
    side = SideCorrection(per_mille, offset)
    assert side.of(0) == side.bound(0) == 0
    assert 0 <= side.of(tokens) <= side.bound(tokens)
    assert side.bound(tokens) >= tokens
