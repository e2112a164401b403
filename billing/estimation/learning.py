"""What a vendor's own counts teach about ours: how far they lie apart, and what would mend it.

A pair is (our count, what the vendor reported), both above zero, of one vendor's model and of one
side of an exchange. Pure functions; who samples and who decides is elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from statistics import fmean, median
from typing import Final

from billing.estimation.corrections import UNCHANGED, SideCorrection

Pair = tuple[int, int]

SAMPLE_MIN: Final = 30
"""Fewer pairs teach nothing: nothing is proposed and nothing flagged."""
GAIN_MIN: Final = 1 / 3
GAIN_MIN_ERROR: Final = 0.005
"""Of the score in force a proposal takes away so large a part, and so much at least."""
SIMPLER_WITHIN: Final = 1.1
"""A simpler correction is as good as the best if its score is within this factor."""
DRIFT_MIN: Final = Decimal("0.03")
"""Of our count; a vendor that reports so much more than expected is flagged."""
HISTORY_MIN: Final = 3
"""Earlier comparisons that say what is usual; with fewer the expected error does."""
PER_MILLE: Final = range(250, 4_001)
OFFSET_MAX: Final = 10_000
"""Outside of these it is no correction: another model answers, or the vendor invents."""

_PLACES: Final = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class Spread:
    """Relative errors of our count against the vendor's, as fractions.

    `median_error` and `p95_error` are without a sign; `bias` is the median of what the vendor
    reports beyond our count, below zero where it reports less.
    """

    sample_size: int
    median_error: Decimal
    p95_error: Decimal
    bias: Decimal


def spread(pairs: Sequence[Pair], correction: SideCorrection = UNCHANGED) -> Spread | None:
    """How far our counts, corrected, lie from the vendor's; None without pairs."""
    if not pairs:
        return None
    errors = _errors(pairs, correction)
    biases = [(reported - ours) / ours for ours, reported in _corrected(pairs, correction)]
    return Spread(
        sample_size=len(pairs),
        median_error=_fraction(median(errors)),
        p95_error=_fraction(_p95(errors)),
        bias=_fraction(median(biases)),
    )


def learn(pairs: Sequence[Pair], in_force: SideCorrection) -> SideCorrection | None:
    """The simplest correction that mends what the one in force leaves; None where it is well.

    Each kind is fitted on one half of the pairs and judged on the other, both ways around: a
    correction that only remembers its sample gains nothing. Expects the pairs in random order.
    """
    if len(pairs) < SAMPLE_MIN:
        return None
    scores = [(fit, _held_out(fit, pairs)) for fit in (_unchanged, _offset, _factor, _line)]
    best = min(score for _, score in scores)
    fit, score = next(one for one in scores if one[1] <= best * SIMPLER_WITHIN)
    now = _score(pairs, in_force)
    if now - score < max(now * GAIN_MIN, GAIN_MIN_ERROR):
        return None
    found = fit(pairs)
    return found if found is not None and found != in_force else None


def is_drifting(now: Spread, earlier: Sequence[Decimal], expected_error: Decimal | None) -> bool:
    """Whether the vendor reports more than our count by more than is usual for it.

    `earlier` are the biases of the comparisons before; too few, and `expected_error` of our count
    stands for what is usual. None says that it is not known: then nothing is flagged.
    """
    if now.sample_size < SAMPLE_MIN:
        return False
    if len(earlier) >= HISTORY_MIN:
        return now.bias > max(median(earlier), Decimal(0)) + DRIFT_MIN
    return expected_error is not None and now.bias > expected_error + DRIFT_MIN


Fit = Callable[[Sequence[Pair]], SideCorrection | None]


def _unchanged(_pairs: Sequence[Pair]) -> SideCorrection | None:
    return UNCHANGED


def _offset(pairs: Sequence[Pair]) -> SideCorrection | None:
    return _bounded(1.0, median(reported - counted for counted, reported in pairs))


def _factor(pairs: Sequence[Pair]) -> SideCorrection | None:
    return _bounded(median(reported / counted for counted, reported in pairs), 0.0)


def _line(pairs: Sequence[Pair]) -> SideCorrection | None:
    """Theil's incomplete method: no single exchange bends it.

    The slope is the median of those between each pair and the one half a sample further along.
    """
    ordered = sorted(pairs)
    half = len(ordered) // 2
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in zip(ordered[:half], ordered[-half:], strict=True)
        if later[0] > earlier[0]
    ]
    if not slopes:
        return None
    slope = median(slopes)
    return _bounded(slope, median(reported - slope * counted for counted, reported in pairs))


def _bounded(factor: float, offset: float) -> SideCorrection | None:
    per_mille, tokens = round(factor * 1_000), round(offset)
    if per_mille not in PER_MILLE or abs(tokens) > OFFSET_MAX:
        return None
    return SideCorrection(per_mille, tokens)


def _held_out(fit: Fit, pairs: Sequence[Pair]) -> float:
    halves = pairs[::2], pairs[1::2]
    scores = []
    for learnt, judged in (halves, halves[::-1]):
        found = fit(learnt)
        if found is None:
            return float("inf")
        scores.append(_score(judged, found))
    return fmean(scores)


def _score(pairs: Sequence[Pair], correction: SideCorrection) -> float:
    """Half of the calls and nearly all of them: a correction that helps one must not cost both."""
    errors = _errors(pairs, correction)
    return (median(errors) + _p95(errors)) / 2


def _errors(pairs: Sequence[Pair], correction: SideCorrection) -> list[float]:
    return [abs(reported - ours) / reported for ours, reported in _corrected(pairs, correction)]


def _corrected(pairs: Sequence[Pair], correction: SideCorrection) -> list[Pair]:
    return [(max(correction.of(counted), 1), reported) for counted, reported in pairs]


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[ceil(len(values) * 0.95) - 1]


def _fraction(value: float) -> Decimal:
    return Decimal(value).quantize(_PLACES)
