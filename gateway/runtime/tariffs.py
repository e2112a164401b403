"""Plans and prices in memory: what a model costs a tenant at a moment.

The same rules as `billing.plans`, without a round trip: a plan's own price wins over the list
price, and the plan's factor applies to list prices only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from billing.models import PlanTerms, Price, TenantPlan
from billing.rating import PriceVersion, under, version_of

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Dated(Generic[T]):
    """What is in force from a moment on."""

    since_s: float
    value: T


@dataclass(frozen=True, slots=True)
class Terms:
    """What a plan's terms mean to a request. None for a limit is none."""

    id: int
    plan_id: int
    price_factor_bps: int
    allowed_models: frozenset[str] | None
    requests_per_minute: int | None
    concurrent_requests: int | None

    def may_use_model(self, model: str) -> bool:
        return self.allowed_models is None or model in self.allowed_models


PriceKey = tuple[str, str, int | None]  # model, currency, plan
TermsKey = tuple[int, str]  # plan, currency


@dataclass(frozen=True, slots=True)
class Tariffs:
    """Each sequence is newest first. An incomplete price is None: it refuses its model."""

    prices: Mapping[PriceKey, Sequence[Dated[PriceVersion | None]]] = field(default_factory=dict)
    terms: Mapping[TermsKey, Sequence[Dated[Terms]]] = field(default_factory=dict)
    plans: Mapping[int, Sequence[Dated[int | None]]] = field(default_factory=dict)
    _made: dict[tuple[int, int], PriceVersion] = field(default_factory=dict)

    def terms_for(self, tenant_id: int, currency: str, now_s: float) -> Terms | None:
        """The terms in force; None for a tenant without a plan."""
        plan = _in_force(self.plans.get(tenant_id), now_s)
        if plan is None or plan.value is None:
            return None
        terms = _in_force(self.terms.get((plan.value, currency)), now_s)
        return None if terms is None else terms.value

    def price_for(
        self, model: str, currency: str, now_s: float, terms: Terms | None
    ) -> PriceVersion | None:
        """The version in force, None where the model has no price: then it is refused."""
        if terms is not None:
            own = _in_force(self.prices.get((model, currency, terms.plan_id)), now_s)
            if own is not None:
                return own.value
        listed = _in_force(self.prices.get((model, currency, None)), now_s)
        if listed is None or listed.value is None or terms is None:
            return None if listed is None else listed.value
        return self._under(listed.value, terms)

    def _under(self, version: PriceVersion, terms: Terms) -> PriceVersion:
        """Made once for as long as this catalog is in force."""
        found = self._made.get((version.id, terms.id))
        if found is None:
            found = under(version, terms.id, terms.price_factor_bps)
            self._made[version.id, terms.id] = found
        return found


def load_tariffs() -> Tariffs:
    """Three queries."""
    return Tariffs(
        prices=_newest_first(
            ((price.model, price.currency, price.plan_id), _dated_price(price))
            for price in Price.objects.order_by("-effective_from")
        ),
        terms=_newest_first(
            ((terms.plan_id, terms.currency), _dated_terms(terms))
            for terms in PlanTerms.objects.order_by("-effective_from")
        ),
        plans=_newest_first(
            (assigned.tenant_id, Dated(assigned.starts_at.timestamp(), assigned.plan_id))
            for assigned in TenantPlan.objects.order_by("-starts_at")
        ),
    )


def _in_force(dated: Sequence[Dated[T]] | None, now_s: float) -> Dated[T] | None:
    return next((one for one in dated or () if one.since_s <= now_s), None)


def _newest_first(pairs: Iterable[tuple[K, Dated[T]]]) -> dict[K, list[Dated[T]]]:
    found: dict[K, list[Dated[T]]] = {}
    for key, dated in pairs:
        found.setdefault(key, []).append(dated)
    return found


def _dated_price(price: Price) -> Dated[PriceVersion | None]:
    version = version_of(price) if price.is_complete else None
    return Dated(price.effective_from.timestamp(), version)


def _dated_terms(terms: PlanTerms) -> Dated[Terms]:
    allowed = terms.allowed_models
    return Dated(
        terms.effective_from.timestamp(),
        Terms(
            id=terms.pk,
            plan_id=terms.plan_id,
            price_factor_bps=terms.price_factor_bps,
            allowed_models=None if allowed is None else frozenset(allowed),
            requests_per_minute=terms.requests_per_minute,
            concurrent_requests=terms.concurrent_requests,
        ),
    )
