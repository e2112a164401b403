"""Which price versions an apply adds. A version is immutable: a change is a new version."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from billing.models import Price
from billing.rating import TOKEN_CLASSES
from gateway.catalog.diff import Diff, moment_text, price_text
from gateway.catalog.entries import Mistake, ModelEntry, PriceEntry

PER_REQUEST: Final = "per_request"
DIMENSIONS: Final = (*TOKEN_CLASSES, PER_REQUEST)

Numbers = tuple[int | None, ...]
Tiers = tuple[tuple[int, Numbers], ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """What a price says: a number for each of DIMENSIONS, and again for each tier's TOKEN_CLASSES.

    Tiers are pairs of `above_prompt_tokens` and numbers; they ascend.
    """

    numbers: Numbers
    tiers: Tiers = ()

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


@dataclass(frozen=True, slots=True)
class Version:
    """A price from a moment on, stored or about to be."""

    effective_from: datetime
    figures: Figures


def figures_of(entry: PriceEntry) -> Figures:
    return Figures(
        tuple(getattr(entry, f"{name}_nanos") for name in DIMENSIONS),
        tuple(
            (
                tier.above_prompt_tokens,
                tuple(getattr(tier, f"{name}_nanos") for name in TOKEN_CLASSES),
            )
            for tier in entry.tiers
        ),
    )


def stored_figures(price: Price) -> Figures:
    return Figures(
        tuple(getattr(price, f"{name}_nanos") for name in DIMENSIONS),
        tuple(
            (
                tier["above_prompt_tokens"],
                tuple(tier.get(f"{name}_nanos") for name in TOKEN_CLASSES),
            )
            for tier in price.tiers
        ),
    )


def in_force(versions: Iterable[Version], moment: datetime) -> Version | None:
    past = (version for version in versions if version.effective_from <= moment)
    return max(past, key=lambda version: version.effective_from, default=None)


def stored_versions(models: Iterable[str]) -> dict[str, dict[str, list[Version]]]:
    """Versions by model and currency."""
    found: dict[str, dict[str, list[Version]]] = defaultdict(lambda: defaultdict(list))
    for price in Price.objects.filter(model__in=list(models)).order_by("effective_from"):
        version = Version(price.effective_from, stored_figures(price))
        found[price.model][price.currency].append(version)
    return found


def add_versions(entries: Sequence[ModelEntry], now: datetime, diff: Diff) -> list[Mistake]:
    """Insert what is new; returns what cannot be, and then the caller rolls back."""
    stored = stored_versions(entry.name for entry in entries)
    mistakes: list[Mistake] = []
    rows: list[Price] = []
    for model in entries:
        of_model = stored[model.name]
        given = _by_currency(model.prices)
        for currency, prices in given.items():
            plan = _Plan(model.name, currency, of_model[currency], now)
            mistakes += plan.read(prices)
            rows += plan.rows(diff)
            diff.warnings += plan.warnings()
        diff.warnings += _left_alone(model, given, of_model, now)
    Price.objects.bulk_create(rows)
    return mistakes


def _by_currency(prices: Iterable[PriceEntry]) -> dict[str, list[PriceEntry]]:
    found: dict[str, list[PriceEntry]] = defaultdict(list)
    for price in prices:
        found[price.currency].append(price)
    return found


def _left_alone(
    model: ModelEntry,
    given: dict[str, list[PriceEntry]],
    stored: dict[str, list[Version]],
    now: datetime,
) -> list[str]:
    words = [
        f"model {model.name} has no {currency} price in the file: "
        "the one in force stays, since a price cannot be withdrawn"
        for currency in sorted(stored.keys() - given.keys())
        if in_force(stored[currency], now) is not None
    ]
    if not given and not words:
        words.append(f"model {model.name} has no price: requests for it are refused")
    return words


class _Plan:
    """One model's versions in one currency: those stored, and those that the file adds."""

    def __init__(self, model: str, currency: str, stored: Sequence[Version], now: datetime) -> None:
        self._model = model
        self._currency = currency
        self._now = now
        self._stored = list(stored)
        self._added: list[Version] = []
        self._named: set[datetime] = set()

    @property
    def _all(self) -> list[Version]:
        return [*self._stored, *self._added]

    def read(self, prices: Sequence[PriceEntry]) -> list[Mistake]:
        """In the order of time, so that each is compared with what is in force before it."""
        ordered = sorted(prices, key=self._start_of)
        words = [(price, self._read_one(price)) for price in ordered]
        mistakes = [Mistake(price.line, text) for price, text in words if text]
        return mistakes or self._check_now(ordered)

    def rows(self, diff: Diff) -> list[Price]:
        for version in self._added:
            earlier = [v for v in self._all if v.effective_from < version.effective_from]
            before = in_force(earlier, version.effective_from)
            when = moment_text(version.effective_from)
            diff.add(
                f"price of {self._model} in {self._currency} from {when}",
                *_differences(before, version),
            )
        return [
            Price(
                model=self._model,
                currency=self._currency,
                effective_from=version.effective_from,
                **_columns(version.figures),
            )
            for version in self._added
        ]

    def warnings(self) -> list[str]:
        """Planned versions that the file does not know stay, and will be in force one day."""
        words = [
            f"price of {self._model} in {self._currency} from "
            f"{moment_text(version.effective_from)} is stored and not in the file: it stays"
            for version in self._stored
            if version.effective_from > self._now and version.effective_from not in self._named
        ]
        current = in_force(self._all, self._now)
        if current is None:
            words.append(
                f"model {self._model} has no price in {self._currency} yet: "
                "requests for it are refused until then"
            )
        words += [
            f"the price of {self._model} in {self._currency} from "
            f"{moment_text(version.effective_from)} is incomplete, it needs input and output: "
            "requests for the model are refused while it is in force"
            for version in self._all
            if not version.figures.is_complete
            and (version == current or version.effective_from > self._now)
        ]
        return words

    def _start_of(self, price: PriceEntry) -> datetime:
        return price.effective_from or self._now

    def _read_one(self, price: PriceEntry) -> str:
        """Take the price in; returns what is wrong with it, or nothing."""
        start, figures = self._start_of(price), figures_of(price)
        self._named.add(start)
        before = in_force(self._all, start)
        if before is not None and before.figures == figures:
            return ""
        stored = in_force(self._stored, start)
        if stored is not None and self._is_frozen(price, stored):
            return (
                f"the price of {self._model} in {self._currency} at {moment_text(start)} is "
                f"{_listed(stored)}, and a stored price never changes; expected the same numbers, "
                "a later effective_from, or none for from now on."
            )
        self._added.append(Version(start, figures))
        return ""

    def _is_frozen(self, price: PriceEntry, stored: Version) -> bool:
        """A stored version stands at this very time, or was in force at a time that is past."""
        if stored.effective_from == self._start_of(price):
            return True
        return price.effective_from is not None and price.effective_from <= self._now

    def _check_now(self, ordered: Sequence[PriceEntry]) -> list[Mistake]:
        """What the file says of today must be what is charged today."""
        current = in_force(self._all, self._now)
        past = [price for price in ordered if self._start_of(price) <= self._now]
        if not past or current is None or figures_of(past[-1]) == current.figures:
            return []
        return [
            Mistake(
                past[-1].line,
                f"since {moment_text(current.effective_from)} another price of {self._model} in "
                f"{self._currency} is in force: {_listed(current)}; expected that one too, or a "
                "price without effective_from to replace it from now on.",
            )
        ]


def _columns(figures: Figures) -> dict[str, Any]:
    named = zip(DIMENSIONS, figures.numbers, strict=True)
    tiers = [
        {"above_prompt_tokens": above, **{f"{name}_nanos": nanos for name, nanos in given.items()}}
        for above, given in figures.given_of_tiers()
    ]
    return {**{f"{name}_nanos": nanos for name, nanos in named}, "tiers": tiers}


def _listed(version: Version) -> str:
    words = [f"{name} {price_text(number)}" for name, number in version.figures.given()]
    return ", ".join([*words, *_tier_words(version.figures)]) or "nothing"


def _differences(before: Version | None, after: Version) -> list[str]:
    if before is None:
        return [_listed(after)]
    old, new = before.figures, after.figures
    words = [
        f"{name} {price_text(was)} → {price_text(now)}"
        for name, was, now in zip(DIMENSIONS, old.numbers, new.numbers, strict=True)
        if was != now
    ]
    return words if old.tiers == new.tiers else [*words, *(_tier_words(new) or ["no tiers"])]


def _tier_words(figures: Figures) -> list[str]:
    return [
        f"above {above} prompt tokens "
        + " ".join(f"{name} {price_text(number)}" for name, number in given.items())
        for above, given in figures.given_of_tiers()
    ]
