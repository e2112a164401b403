"""The unit prices of versions that rated exchanges, as rows for the queries that rate again."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from django.db import connection

from billing.models import PlanTerms, Price
from billing.rating import PriceVersion, Rates, version_of

MOST_TOKENS: Final = 2**62
LEAST_TOKENS: Final = -1

_USED = """
SELECT DISTINCT price_id, terms_id FROM billing_exchange WHERE price_id IS NOT NULL
"""


def used_rates() -> list[dict[str, Any]]:
    """The rates of every version that rated an exchange."""
    with connection.cursor() as cursor:
        cursor.execute(_USED)
        return rates_of(cursor.fetchall())


def rates_of(pairs: Sequence[tuple[int, int | None]]) -> list[dict[str, Any]]:
    """A row for each tier of each price id under terms (or None): all nanos a million tokens.

    It counts for prompts above `above`, up to `up_to` tokens. `terms_id` 0 is no terms.
    """
    prices = Price.objects.in_bulk([price_id for price_id, _ in pairs])
    terms = PlanTerms.objects.in_bulk([terms_id for _, terms_id in pairs if terms_id])
    return [
        row
        for price_id, terms_id in pairs
        if price_id in prices and prices[price_id].is_complete
        for row in _rows(version_of(prices[price_id], terms.get(terms_id)), terms_id)
    ]


def _rows(version: PriceVersion, terms_id: int | None) -> list[dict[str, Any]]:
    tiers = [(LEAST_TOKENS, version.rates)]
    tiers += [(tier.above_prompt_tokens, tier.rates) for tier in version.tiers]
    bounds = [above for above, _ in tiers] + [MOST_TOKENS]
    return [
        {
            "price_id": version.id,
            "terms_id": terms_id or 0,
            "above": above,
            "up_to": up_to,
            "per_request": version.per_request_nanos,
            **_numbers(rates),
        }
        for (above, up_to), (_, rates) in zip(pairwise(bounds), tiers, strict=True)
    ]


def _numbers(rates: Rates) -> dict[str, int]:
    return {name.removesuffix("_nanos"): nanos for name, nanos in asdict(rates).items()}
