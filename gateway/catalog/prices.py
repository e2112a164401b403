"""Prices as the catalog's versions: what they say, which an apply adds."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from billing.models import Plan, Price
from billing.rating import TOKEN_CLASSES
from gateway.catalog.diff import Diff, moment_text, price_text
from gateway.catalog.entries import Mistake, ModelEntry, PriceEntry
from gateway.catalog.versions import Given, Subject, Timeline, Version, in_force

PER_REQUEST: Final = "per_request"
DIMENSIONS: Final = (*TOKEN_CLASSES, PER_REQUEST)

Numbers = tuple[int | None, ...]
Kind = tuple[str, str]
"""Plan and currency of a price; plan "" is the list price."""


@dataclass(frozen=True, slots=True)
class PriceFigures:
    """What a price says: a number for each of DIMENSIONS, and again for each tier's TOKEN_CLASSES.

    Tiers are pairs of `above_prompt_tokens` and numbers; they ascend.
    """

    numbers: Numbers
    tiers: tuple[tuple[int, Numbers], ...] = ()

    @property
    def is_complete(self) -> bool:
        named = dict(zip(DIMENSIONS, self.numbers, strict=True))
        return named["input"] is not None and named["output"] is not None

    def given(self) -> Iterator[tuple[str, int]]:
        """The dimensions that a file has to name."""
        for name, number in zip(DIMENSIONS, self.numbers, strict=True):
            if number or (number == 0 and name != PER_REQUEST):
                yield name, number

    def given_of_tiers(self) -> Iterator[tuple[int, dict[str, int]]]:
        for above, numbers in self.tiers:
            named = zip(TOKEN_CLASSES, numbers, strict=True)
            yield above, {name: number for name, number in named if number is not None}

    def words(self) -> list[str]:
        words = [f"{name} {price_text(number)}" for name, number in self.given()]
        return [*words, *self._tier_words()] or ["nothing"]

    def words_since(self, before: "PriceFigures") -> list[str]:
        words = [
            f"{name} {price_text(was)} → {price_text(now)}"
            for name, was, now in zip(DIMENSIONS, before.numbers, self.numbers, strict=True)
            if was != now
        ]
        if before.tiers != self.tiers:
            words += self._tier_words() or ["no tiers"]
        return words

    def _tier_words(self) -> list[str]:
        return [
            f"above {above} prompt tokens "
            + " ".join(f"{name} {price_text(number)}" for name, number in given.items())
            for above, given in self.given_of_tiers()
        ]

    def columns(self) -> dict[str, Any]:
        named = zip(DIMENSIONS, self.numbers, strict=True)
        tiers = [
            {"above_prompt_tokens": above, **{f"{name}_nanos": n for name, n in given.items()}}
            for above, given in self.given_of_tiers()
        ]
        return {**{f"{name}_nanos": nanos for name, nanos in named}, "tiers": tiers}


Versions = list[Version[PriceFigures]]


def stored_versions(models: Iterable[str]) -> dict[str, dict[Kind, Versions]]:
    """Versions by model, then by plan and currency."""
    found: dict[str, dict[Kind, Versions]] = defaultdict(lambda: defaultdict(list))
    prices = Price.objects.filter(model__in=list(models)).select_related("plan")
    for price in prices.order_by("effective_from"):
        kind = ("" if price.plan is None else price.plan.name, price.currency)
        found[price.model][kind].append(Version(price.effective_from, _stored_figures(price)))
    return found


def add_versions(
    entries: Sequence[ModelEntry], plans: Mapping[str, Plan], now: datetime, diff: Diff
) -> list[Mistake]:
    """Insert what is new; returns what cannot be, and then the caller rolls back."""
    stored = stored_versions(entry.name for entry in entries)
    mistakes: list[Mistake] = []
    rows: list[Price] = []
    for model in entries:
        of_model = stored[model.name]
        given = _by_kind(model.prices)
        for kind, prices in given.items():
            plan, currency = kind
            if plan and plan not in plans:
                mistakes += [_unknown_plan(price) for price in prices]
                continue
            timeline = Timeline(_subject(model.name, kind), of_model[kind], now)
            mistakes += timeline.read(map(_given, prices))
            timeline.tell(diff)
            diff.warnings += _refusals(model.name, timeline, currency, now)
            rows += [
                Price(
                    model=model.name,
                    plan=plans.get(plan),
                    currency=currency,
                    effective_from=version.effective_from,
                    **version.figures.columns(),
                )
                for version in timeline.added
            ]
        diff.warnings += _left_alone(model, given, of_model, now)
    Price.objects.bulk_create(rows)
    return mistakes


def _subject(model: str, kind: Kind) -> Subject:
    plan, currency = kind
    return Subject("price", f"price of {model}{f' on plan {plan}' if plan else ''} in {currency}")


def _by_kind(prices: Iterable[PriceEntry]) -> dict[Kind, list[PriceEntry]]:
    found: dict[Kind, list[PriceEntry]] = defaultdict(list)
    for price in prices:
        found[price.plan, price.currency].append(price)
    return found


def _unknown_plan(price: PriceEntry) -> Mistake:
    return Mistake(
        price.line, f"the price's plan {price.plan!r} is unknown; expected a name under plans."
    )


def _refusals(
    model: str, timeline: Timeline[PriceFigures], currency: str, now: datetime
) -> list[str]:
    """Times at which requests for the model are refused."""
    current = in_force(timeline.all, now)
    is_list_price = timeline.subject == _subject(model, ("", currency))
    words = []
    if current is None and is_list_price:
        words.append(
            f"model {model} has no price in {currency} yet: requests for it are refused until then"
        )
    words += [
        f"the {timeline.subject.words} from {moment_text(version.effective_from)} is incomplete, "
        "it needs input and output: requests for the model are refused while it is in force"
        for version in timeline.all
        if not version.figures.is_complete and (version == current or version.effective_from > now)
    ]
    return words


def _left_alone(
    model: ModelEntry,
    given: Mapping[Kind, list[PriceEntry]],
    stored: Mapping[Kind, Versions],
    now: datetime,
) -> list[str]:
    words = [
        f"{_subject(model.name, kind).words} is not in the file: the one in force stays"
        for kind in sorted(stored.keys() - given.keys())
        if in_force(stored[kind], now) is not None
    ]
    if not given and not words:
        words.append(f"model {model.name} has no price: requests for it are refused")
    return words


def _given(price: PriceEntry) -> Given[PriceFigures]:
    figures = PriceFigures(
        tuple(getattr(price, f"{name}_nanos") for name in DIMENSIONS),
        tuple(
            (
                tier.above_prompt_tokens,
                tuple(getattr(tier, f"{name}_nanos") for name in TOKEN_CLASSES),
            )
            for tier in price.tiers
        ),
    )
    return Given(price.line, price.effective_from, figures)


def _stored_figures(price: Price) -> PriceFigures:
    return PriceFigures(
        tuple(getattr(price, f"{name}_nanos") for name in DIMENSIONS),
        tuple(
            (
                tier["above_prompt_tokens"],
                tuple(tier.get(f"{name}_nanos") for name in TOKEN_CLASSES),
            )
            for tier in price.tiers
        ),
    )
