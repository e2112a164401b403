"""From what exchanges add up to, to the lines and the total of a document. Pure, and exact."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from billing.models import LineKind
from billing.money import NANOS_PER_CENT, price_of
from billing.rating import PER_REQUEST, TOKEN_CLASSES

UNCHARGED_WORDS: Final = "Requests without a charge: refused, failed, or without output"


@dataclass(frozen=True, slots=True)
class Part:
    """The exchanges of an invoice that one price version rated for one model, added up.

    `units` are nanos per million tokens of each class, None for the part of those that no price
    rated: they cost nothing. `quantities` are tokens, `counts` exchanges, by class.
    """

    number: int
    model: str
    price_id: int | None
    terms_id: int | None
    above_prompt_tokens: int | None
    units: Mapping[str, int] | None
    per_request_nanos: int
    exchange_count: int
    charge_nanos: int
    shortfall_nanos: int
    quantities: Mapping[str, int]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DraftLine:
    """A line before it has an invoice; see `InvoiceLine`."""

    kind: LineKind
    words: str
    amount_nanos: int
    part: Part | None = None
    dimension: str = ""
    quantity: int | None = None
    unit_nanos: int | None = None
    exchange_count: int = 0
    references: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rounded:
    """The exact sum of a document, its total in whole cents, and what is carried on."""

    total_nanos: int
    carried_out_nanos: int


def rounded(exact_nanos: int) -> Rounded:
    """Round once, half up. No document is below zero: such a sum is carried on as it is."""
    cents = (exact_nanos + NANOS_PER_CENT // 2) // NANOS_PER_CENT
    total_nanos = max(cents, 0) * NANOS_PER_CENT
    return Rounded(total_nanos, exact_nanos - total_nanos)


def lines_of(part: Part) -> list[DraftLine]:
    """The part's lines. Together they are its charges, whatever the prices."""
    if part.units is None:
        return [_line(part, LineKind.UNCHARGED, UNCHARGED_WORDS, part.charge_nanos)]
    priced = list(_priced(part, part.units))
    cost_nanos = part.charge_nanos + part.shortfall_nanos
    rounding_nanos = cost_nanos - sum(line.amount_nanos for line in priced)
    if rounding_nanos:
        words = f"{part.model} rounding of each charge, half up"
        priced.append(_line(part, LineKind.ROUNDING, words, rounding_nanos))
    if part.shortfall_nanos:
        words = f"{part.model} not charged: more than the balance carried"
        priced.append(_line(part, LineKind.SHORTFALL, words, -part.shortfall_nanos))
    return priced


def _priced(part: Part, units: Mapping[str, int]) -> Iterator[DraftLine]:
    for name in TOKEN_CLASSES:
        quantity = part.quantities[name]
        if quantity:
            yield DraftLine(
                LineKind.USAGE,
                f"{part.model} {name.replace('_', ' ')}",
                price_of(quantity, units[name]),
                part,
                name,
                quantity,
                units[name],
                part.counts[name],
            )
    if part.per_request_nanos:
        yield DraftLine(
            LineKind.REQUESTS,
            f"{part.model} requests",
            part.exchange_count * part.per_request_nanos,
            part,
            PER_REQUEST,
            part.exchange_count,
            part.per_request_nanos,
            part.exchange_count,
        )


def _line(part: Part, kind: LineKind, words: str, amount_nanos: int) -> DraftLine:
    return DraftLine(
        kind,
        words,
        amount_nanos,
        part,
        quantity=part.exchange_count,
        exchange_count=part.exchange_count,
    )
