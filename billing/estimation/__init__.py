"""Counting tokens when the vendor returned no usage, and bounding them before it is called."""

from collections.abc import Iterable

from billing.estimation.bounds import bound
from billing.estimation.corrections import Correction, SideCorrection
from billing.estimation.estimates import (
    APPROXIMATE,
    TEMPLATE_EXACT,
    VOCABULARY_EXACT,
    Count,
    Estimate,
    corrected_completion,
    corrected_prompt,
    count_completion,
    count_prompt,
    count_text,
    estimate,
    prompt_bound,
)
from billing.estimation.registry import FAMILIES, UnknownFamilyError, check_family, family_of
from billing.estimation.text import counter

__all__ = [
    "APPROXIMATE",
    "FAMILIES",
    "TEMPLATE_EXACT",
    "VOCABULARY_EXACT",
    "Correction",
    "Count",
    "Estimate",
    "SideCorrection",
    "UnknownFamilyError",
    "check_family",
    "corrected_completion",
    "corrected_prompt",
    "count_completion",
    "count_prompt",
    "count_text",
    "estimate",
    "family_of",
    "preload",
    "preload_bounds",
    "prompt_bound",
]


def preload(families: Iterable[str] = tuple(FAMILIES)) -> None:
    """Builds the families' vocabularies, to count: in a worker's parent, before it forks."""
    for vocabulary in {FAMILIES[name].vocabulary for name in families}:
        counter(vocabulary)


def preload_bounds(families: Iterable[str]) -> None:
    """Builds the small parts of the families' vocabularies that `prompt_bound` needs."""
    for vocabulary in {FAMILIES[name].vocabulary for name in families}:
        bound(vocabulary)
