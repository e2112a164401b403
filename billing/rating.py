"""Rating: usage × price version → lines. A pure function; every charge and page uses it."""

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

from billing.errors import IncompletePrice
from billing.ids import public_price_id
from billing.models import PlanTerms, Price
from billing.money import BASIS_POINTS, TOKENS_PER_PRICE, at_factor, price_of
from billing.usage import Usage

PROMPT_CLASSES: Final = ("input", "cached_input", "cache_write", "image_input", "audio_input")
COMPLETION_CLASSES: Final = ("output", "reasoning", "audio_output")
TOKEN_CLASSES: Final = (*PROMPT_CLASSES, *COMPLETION_CLASSES)
ALWAYS_SHOWN: Final = frozenset({"input", "output"})
PER_REQUEST: Final = "request"
ROUNDINGS_NANOS: Final = len(TOKEN_CLASSES) // 2  # each line's rounding adds half a nano at most


@dataclass(frozen=True, slots=True)
class Rates:
    """What a token of each class costs: nanos per million tokens."""

    input_nanos: int
    cached_input_nanos: int
    cache_write_nanos: int
    image_input_nanos: int
    audio_input_nanos: int
    output_nanos: int
    reasoning_nanos: int
    audio_output_nanos: int

    def of(self, token_class: str) -> int:
        nanos: int = getattr(self, f"{token_class}_nanos")
        return nanos

    def dearest(self, token_classes: tuple[str, ...]) -> int:
        return max(map(self.of, token_classes))

    def at(self, factor_bps: int) -> "Rates":
        return Rates(*(at_factor(nanos, factor_bps) for nanos in astuple(self)))


@dataclass(frozen=True, slots=True)
class Tier:
    """The rates of a whole request whose prompt has more tokens than this."""

    above_prompt_tokens: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class PriceVersion:
    """What rating needs of a price, detached from the database. `tiers` ascend.

    `terms_id` names the plan's terms whose factor is in the numbers, None where there is none.
    """

    id: int
    currency: str
    rates: Rates
    per_request_nanos: int = 0
    tiers: tuple[Tier, ...] = ()
    terms_id: int | None = None
    is_free: bool = field(init=False)

    def __post_init__(self) -> None:
        costs = [self.per_request_nanos, *(r.dearest(TOKEN_CLASSES) for r in self._reachable(None))]
        object.__setattr__(self, "is_free", not any(costs))

    @property
    def public_id(self) -> str:
        return public_price_id(self.id)

    def rates_for(self, prompt_tokens: int) -> Rates:
        return self._reachable(prompt_tokens)[-1]

    def _reachable(self, prompt_tokens: int | None) -> list[Rates]:
        """The rates of every prompt up to this length; None is a prompt of any length."""
        tiers = (
            tier.rates
            for tier in self.tiers
            if prompt_tokens is None or tier.above_prompt_tokens < prompt_tokens
        )
        return [self.rates, *tiers]

    def most_nanos(self, prompt_tokens: int, output_tokens: int) -> int:
        """The dearest that so many tokens, or fewer, can turn out to be; before rounding."""
        exact = max(
            prompt_tokens * rates.dearest(PROMPT_CLASSES)
            + output_tokens * rates.dearest(COMPLETION_CLASSES)
            for rates in self._reachable(prompt_tokens)
        )
        return -(-exact // TOKENS_PER_PRICE) + self.per_request_nanos


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


def version_of(price: Price, terms: PlanTerms | None = None) -> PriceVersion:
    """The price, under the plan's terms if there are any; see `under`.

    Raises IncompletePrice: an unknown price is never zero.
    """
    version = _version_of(price)
    if terms is None or price.plan_id is not None:
        return version
    return under(version, terms.pk, terms.price_factor_bps)


def under(version: PriceVersion, terms_id: int, factor_bps: int) -> PriceVersion:
    """A list price with a plan's discount or markup in it: the one place where it is applied.

    Each unit price is rounded to a nano, half up. It is the price: what is shown, and what every
    line is the exact product of.
    """
    if factor_bps == BASIS_POINTS:
        return version
    return replace(
        version,
        rates=version.rates.at(factor_bps),
        per_request_nanos=at_factor(version.per_request_nanos, factor_bps),
        tiers=tuple(replace(tier, rates=tier.rates.at(factor_bps)) for tier in version.tiers),
        terms_id=terms_id,
    )


def _version_of(price: Price) -> PriceVersion:
    given = {name: getattr(price, f"{name}_nanos") for name in TOKEN_CLASSES}
    return PriceVersion(
        id=price.pk,
        currency=price.currency,
        rates=_rates(given),
        per_request_nanos=price.per_request_nanos,
        tiers=tuple(
            Tier(tier["above_prompt_tokens"], _rates({**given, **_named(tier)}))
            for tier in price.tiers
        ),
    )


def rate(usage: Usage, price: PriceVersion) -> tuple[Line, ...]:
    """Each token once, each line rounded once, half up. Input and output always have a line."""
    return tuple(_lines(usage, price))


def cost_nanos(usage: Usage, price: PriceVersion) -> int:
    return sum(line.nanos for line in _lines(usage, price))


def hold_nanos(prompt_tokens: int, output_tokens: int, price: PriceVersion) -> int:
    """The most that a request can cost: every token at the dearest class it could turn out to be.

    By the same tiers as the charge, and `ROUNDINGS_NANOS` more, since lines that are rounded apart
    can pass a sum that is rounded once.
    """
    if price.is_free:
        return 0
    return price.most_nanos(prompt_tokens, output_tokens) + ROUNDINGS_NANOS


def _lines(usage: Usage, price: PriceVersion) -> Iterator[Line]:
    rates = price.rates_for(usage.prompt_tokens)
    for name in TOKEN_CLASSES:
        quantity: int = getattr(usage, f"{name}_tokens")
        if quantity or name in ALWAYS_SHOWN:
            unit_nanos = rates.of(name)
            nanos = price_of(quantity, unit_nanos)
            yield Line(name, quantity, unit_nanos, quantity * unit_nanos, nanos)
    if price.per_request_nanos:
        nanos = price.per_request_nanos
        yield Line(PER_REQUEST, 1, nanos, nanos * TOKENS_PER_PRICE, nanos)


def _named(tier: Mapping[str, Any]) -> dict[str, int]:
    return {name: tier[f"{name}_nanos"] for name in TOKEN_CLASSES if f"{name}_nanos" in tier}


def _rates(given: Mapping[str, int | None]) -> Rates:
    """What has no price of its own costs what its side of the exchange costs."""
    if given["input"] is None or given["output"] is None:
        raise IncompletePrice("A price needs one for input and one for output.")
    fallbacks = {
        **dict.fromkeys(PROMPT_CLASSES, given["input"]),
        **dict.fromkeys(COMPLETION_CLASSES, given["output"]),
    }
    nanos = {
        f"{name}_nanos": fallback if given[name] is None else given[name]
        for name, fallback in fallbacks.items()
    }
    return Rates(**nanos)  # type: ignore[arg-type]
