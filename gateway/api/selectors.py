"""What the API asks of the catalog, of a key and of a wallet; each for one principal only."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet, Sum
from django.utils import timezone

from billing.limits import LimitStanding, standing
from billing.models import Account, AccountKind, Charge, Exchange
from billing.plans import terms_at, versions_at
from billing.rating import PriceVersion
from gateway import errors
from gateway.exchanges.selectors import first_id_at
from gateway.models import Model, Route
from keys.models import ApiKey, KeyUse
from keys.principals import Principal


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """A model that a key may use; a test key pays nothing, so it may lack a price."""

    model: Model
    price: PriceVersion | None


@dataclass(frozen=True, slots=True)
class KeyStanding:
    key: ApiKey
    spent_nanos: int
    spent_since: datetime
    last_used_at: datetime | None
    spend_limits: list[LimitStanding]


def models_for(principal: Principal) -> list[OfferedModel]:
    """Return what the key may use, by name: active, routed, priced in the tenant's currency."""
    models = _routed()
    if principal.allowed_models is not None:
        models = models.filter(name__in=principal.allowed_models)
    return _offered(models.order_by("name"), principal)


def model_for(principal: Principal, name: str) -> OfferedModel | None:
    if not principal.may_use_model(name):
        return None
    offered = _offered(_routed().filter(name=name), principal)
    return offered[0] if offered else None


def usable_model(principal: Principal, name: str) -> OfferedModel:
    """Return the model, or refuse as the relay does. Raises ApiError 403 or 404."""
    offered = model_for(principal, name)
    if offered is not None:
        return offered
    if not _routed().filter(name=name).exists():
        raise errors.model_not_found()
    if not principal.may_use_model(name):
        raise errors.model_not_allowed()
    terms = terms_at(principal.tenant_id, principal.currency, timezone.now())
    if terms is not None and terms.allowed_models is not None and name not in terms.allowed_models:
        raise errors.model_not_in_plan()
    raise errors.model_not_priced()


def key_standing(principal: Principal) -> KeyStanding:
    """Return the key with what it was charged since the month began, in UTC."""
    keys = ApiKey.objects.select_related("tenant")
    key = keys.get(pk=principal.key_id, tenant_id=principal.tenant_id)
    since = timezone.now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    first = first_id_at(since)
    exchanges = Exchange.objects.filter(
        tenant_id=principal.tenant_id, key_id=principal.key_id, id__gte=first
    )
    charges = Charge.objects.filter(
        tenant_id=principal.tenant_id,
        exchange_id__gte=first,
        exchange_id__in=exchanges.values("id"),
    )
    spent = charges.aggregate(nanos=Sum("charge_nanos"))["nanos"]
    use = KeyUse.objects.filter(key_id=key.pk).first()
    return KeyStanding(
        key,
        int(spent or 0),
        since,
        None if use is None else use.last_used_at,
        standing(key.tenant, key_id=key.pk),
    )


def wallet_of(principal: Principal) -> Account:
    """Return the wallet; an empty one, not saved, where the tenant has none yet."""
    kind, currency = AccountKind.WALLET, principal.currency
    found = Account.objects.filter(tenant_id=principal.tenant_id, kind=kind, currency=currency)
    return found.first() or Account(tenant_id=principal.tenant_id, kind=kind, currency=currency)


def _routed() -> QuerySet[Model]:
    routes = Route.objects.filter(model_id=OuterRef("pk"), vendor__is_active=True)
    return Model.objects.filter(Exists(routes), is_active=True)


def _offered(models: Iterable[Model], principal: Principal) -> list[OfferedModel]:
    now = timezone.now()
    terms = terms_at(principal.tenant_id, principal.currency, now)
    if terms is not None and terms.allowed_models is not None:
        models = [model for model in models if model.name in terms.allowed_models]
    models = list(models)
    prices = versions_at([model.name for model in models], principal.currency, now, terms)
    offered = [OfferedModel(model, prices.get(model.name)) for model in models]
    return [one for one in offered if one.price is not None or principal.is_test]
