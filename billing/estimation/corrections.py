"""What staff accepted to add to our counts for one vendor's model, and how it is applied."""

from dataclasses import dataclass
from decimal import Decimal

from billing.estimation.family import scaled

UNIT_PER_MILLE = 1_000


@dataclass(frozen=True, slots=True)
class SideCorrection:
    """Of prompts or of completions: `tokens × per_mille / 1000 + offset`, never below zero."""

    per_mille: int = UNIT_PER_MILLE
    offset: int = 0

    def of(self, tokens: int) -> int:
        """The corrected count; of nothing it is nothing."""
        return max(scaled(tokens, self.per_mille) + self.offset, 0) if tokens else 0

    def bound(self, tokens: int) -> int:
        """Of an upper bound an upper bound: a correction downwards is not relied on."""
        return max(self.of(tokens), tokens)


UNCHANGED = SideCorrection()


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """One accepted version. It corrects only what is counted as it was when it was learnt.

    `…_error` is the median error that was left on the sample, None where there was none.
    """

    version: int
    family: str
    rule_version: str
    prompt: SideCorrection
    completion: SideCorrection
    prompt_error: Decimal | None
    completion_error: Decimal | None
