"""Plans as the catalog's versions: what their terms say, which an apply adds."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from billing.models import Plan, PlanTerms
from billing.money import BASIS_POINTS
from gateway.catalog.diff import Diff, percent_text, price_text
from gateway.catalog.entries import Mistake, PlanEntry, TermsEntry
from gateway.catalog.versions import Given, Subject, Timeline, Version

FIELDS: Final = (
    "monthly_fee_nanos",
    "included_credit_nanos",
    "price_factor_bps",
    "allowed_models",
    "requests_per_minute",
    "concurrent_requests",
    "spend_limits",
)
SpendLimits = tuple[tuple[str, int, str], ...]
"""Period, amount in nanos, action; by period."""


@dataclass(frozen=True, slots=True)
class TermsFigures:
    monthly_fee_nanos: int
    included_credit_nanos: int
    price_factor_bps: int
    allowed_models: tuple[str, ...] | None
    requests_per_minute: int | None
    concurrent_requests: int | None
    spend_limits: SpendLimits

    def given(self) -> Iterator[tuple[str, str]]:
        """What a file has to name, in its names, and as a person reads it."""
        if self.monthly_fee_nanos:
            yield "monthly_fee", price_text(self.monthly_fee_nanos)
        if self.included_credit_nanos:
            yield "included_credit", price_text(self.included_credit_nanos)
        if self.price_factor_bps < BASIS_POINTS:
            yield "discount_percent", percent_text(BASIS_POINTS - self.price_factor_bps)
        if self.price_factor_bps > BASIS_POINTS:
            yield "markup_percent", percent_text(self.price_factor_bps - BASIS_POINTS)
        if self.allowed_models is not None:
            yield "allowed_models", " ".join(self.allowed_models) or "none"
        if self.requests_per_minute is not None:
            yield "requests_per_minute", str(self.requests_per_minute)
        if self.concurrent_requests is not None:
            yield "concurrent_requests", str(self.concurrent_requests)
        for period, nanos, action in self.spend_limits:
            yield f"spend limit a {period}", f"{price_text(nanos)} {action}"

    def words(self) -> list[str]:
        return [f"{name} {text}" for name, text in self.given()] or ["list prices"]

    def words_since(self, before: "TermsFigures") -> list[str]:
        was, now = dict(before.given()), dict(self.given())
        return [
            f"{name} {was.get(name, 'none')} → {now.get(name, 'none')}"
            for name in dict.fromkeys((*was, *now))
            if was.get(name) != now.get(name)
        ]

    def columns(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in FIELDS}
        if self.allowed_models is not None:
            values["allowed_models"] = list(self.allowed_models)
        values["spend_limits"] = {
            period: {"amount_nanos": nanos, "action": action}
            for period, nanos, action in self.spend_limits
        }
        return values


Versions = list[Version[TermsFigures]]


def stored_terms() -> dict[str, dict[str, Versions]]:
    """Versions by plan and currency."""
    found: dict[str, dict[str, Versions]] = defaultdict(lambda: defaultdict(list))
    for terms in PlanTerms.objects.select_related("plan").order_by("effective_from"):
        version = Version(terms.effective_from, _stored_figures(terms))
        found[terms.plan.name][terms.currency].append(version)
    return found


def add_plans(
    entries: Sequence[PlanEntry], now: datetime, diff: Diff
) -> tuple[dict[str, Plan], list[Mistake]]:
    """Insert what is new; returns all plans by name, and what cannot be.

    A plan that the file does not name stays: tenants are on it.
    """
    plans = {plan.name: plan for plan in Plan.objects.all()}
    stored = stored_terms()
    mistakes: list[Mistake] = []
    rows: list[PlanTerms] = []
    for entry in entries:
        if entry.name not in plans:
            plans[entry.name] = Plan.objects.create(name=entry.name)
            diff.add(f"plan {entry.name}")
        for currency, given in _by_currency(entry.terms).items():
            subject = Subject("version", f"version of plan {entry.name} in {currency}")
            timeline = Timeline(subject, stored[entry.name][currency], now)
            mistakes += timeline.read(map(_given, given))
            timeline.tell(diff)
            rows += [
                PlanTerms(
                    plan=plans[entry.name],
                    currency=currency,
                    effective_from=version.effective_from,
                    **version.figures.columns(),
                )
                for version in timeline.added
            ]
    PlanTerms.objects.bulk_create(rows)
    return plans, mistakes


def _by_currency(terms: Iterable[TermsEntry]) -> dict[str, list[TermsEntry]]:
    found: dict[str, list[TermsEntry]] = defaultdict(list)
    for one in terms:
        found[one.currency].append(one)
    return found


def _given(terms: TermsEntry) -> Given[TermsFigures]:
    figures = TermsFigures(**{name: getattr(terms, name) for name in FIELDS})
    return Given(terms.line, terms.effective_from, figures)


def _stored_figures(terms: PlanTerms) -> TermsFigures:
    values = {name: getattr(terms, name) for name in FIELDS}
    allowed = terms.allowed_models
    values["allowed_models"] = None if allowed is None else tuple(allowed)
    values["spend_limits"] = tuple(
        (period, limit["amount_nanos"], limit["action"])
        for period, limit in sorted(terms.spend_limits.items())
    )
    return TermsFigures(**values)
