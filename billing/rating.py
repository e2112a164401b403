"""Rating: usage × price version → lines. A pure function; every charge and page uses it."""

from collections.abc import Iterator
from dataclasses import dataclass

from billing.models import Price
from billing.money import TOKENS_PER_PRICE, price_of
from billing.usage import Usage

PER_REQUEST = "request"
ROUNDINGS_NANOS = 3  # seven lines, half a nano each, less what the bound itself rounds up


@dataclass(frozen=True, slots=True)
class PriceVersion:
    """What rating needs of a price, detached from the database: nanos per million tokens."""

    id: int
    currency: str
    input_nanos: int
    cached_input_nanos: int
    cache_write_nanos: int
    output_nanos: int
    reasoning_nanos: int
    per_request_nanos: int

    @property
    def is_free(self) -> bool:
        return not any(
            (
                self.input_nanos,
                self.cached_input_nanos,
                self.cache_write_nanos,
                self.output_nanos,
                self.reasoning_nanos,
                self.per_request_nanos,
            )
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a charge. `unit_nanos` is per million tokens, or per request for that line.

    `exact_micro_nanos` is the product before rounding, in 10⁻¹⁵ currency units.
    """

    dimension: str
    quantity: int
    unit_nanos: int
    exact_micro_nanos: int
    nanos: int


def version_of(price: Price) -> PriceVersion:
    def or_else(value: int | None, fallback: int) -> int:
        return fallback if value is None else value

    return PriceVersion(
        id=price.pk,
        currency=price.currency,
        input_nanos=price.input_nanos,
        cached_input_nanos=or_else(price.cached_input_nanos, price.input_nanos),
        cache_write_nanos=or_else(price.cache_write_nanos, price.input_nanos),
        output_nanos=price.output_nanos,
        reasoning_nanos=or_else(price.reasoning_nanos, price.output_nanos),
        per_request_nanos=price.per_request_nanos,
    )


def rate(usage: Usage, price: PriceVersion) -> tuple[Line, ...]:
    """Each token once, each line rounded once, half up. Input and output always have a line."""
    return tuple(_lines(usage, price))


def cost_nanos(usage: Usage, price: PriceVersion) -> int:
    return sum(line.nanos for line in _lines(usage, price))


def hold_nanos(prompt_tokens: int, output_tokens: int, price: PriceVersion) -> int:
    """The most that a request can cost: every token at the dearest class it could turn out to be.

    `ROUNDINGS_NANOS` more, since lines that are rounded apart can pass a sum that is rounded once.
    """
    dearest_input = max(price.input_nanos, price.cached_input_nanos, price.cache_write_nanos)
    dearest_output = max(price.output_nanos, price.reasoning_nanos)
    if price.is_free:
        return 0
    exact = prompt_tokens * dearest_input + output_tokens * dearest_output
    return -(-exact // TOKENS_PER_PRICE) + price.per_request_nanos + ROUNDINGS_NANOS


def _lines(usage: Usage, price: PriceVersion) -> Iterator[Line]:
    yield _line("input", usage.input_tokens, price.input_nanos)
    if usage.cached_input_tokens:
        yield _line("cached_input", usage.cached_input_tokens, price.cached_input_nanos)
    if usage.cache_write_tokens:
        yield _line("cache_write", usage.cache_write_tokens, price.cache_write_nanos)
    if usage.audio_input_tokens:
        yield _line("audio_input", usage.audio_input_tokens, price.input_nanos)
    yield _line("output", usage.output_tokens, price.output_nanos)
    if usage.reasoning_tokens:
        yield _line("reasoning", usage.reasoning_tokens, price.reasoning_nanos)
    if usage.audio_output_tokens:
        yield _line("audio_output", usage.audio_output_tokens, price.output_nanos)
    if price.per_request_nanos:
        nanos = price.per_request_nanos
        yield Line(PER_REQUEST, 1, nanos, nanos * TOKENS_PER_PRICE, nanos)


def _line(dimension: str, quantity: int, unit_nanos: int) -> Line:
    return Line(
        dimension, quantity, unit_nanos, quantity * unit_nanos, price_of(quantity, unit_nanos)
    )
