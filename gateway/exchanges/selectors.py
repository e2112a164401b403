"""Questions about exchanges. The tenant is part of every query: another's exchange is not found."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from billing import paging
from billing.ids import completion_id, request_id
from billing.models import Charge, Exchange, ExchangeState, Transfer, UsageSource
from billing.usage import COMPLETION_ESTIMATED, PROMPT_ESTIMATED
from gateway.exchanges.charge import ChargeView, LedgerEntry, charge_view, ledger_entries
from gateway.exchanges.legs import LegsView, legs_of
from gateway.models import Transcript
from keys.models import ApiKey

PAGE_ROWS = 20
PAGE_ROWS_MAX = 100

OPEN = "open"
ESTIMATING = "estimating"
SETTLED = "settled"
AT_ESTIMATE = "at_estimate"
FAILED = "failed"
REFUSED = "refused"
CLIENT_LEFT = "client_left"
STATUSES = (OPEN, ESTIMATING, SETTLED, AT_ESTIMATE, FAILED, REFUSED, CLIENT_LEFT)

FAILED_OUTCOMES = ("failed", "partial", "gateway_died")
STATUS_OF_OUTCOME = {
    "refused": REFUSED,
    "client_gone": CLIENT_LEFT,
    **dict.fromkeys(FAILED_OUTCOMES, FAILED),
}
ERROR_OUTCOMES = (*FAILED_OUTCOMES, "refused")

_MOST_UUID = (1 << 128) - 1
_RANDOM_BITS = 80


@dataclass(frozen=True, slots=True)
class KeyView:
    public_id: str
    name: str
    masked: str


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """An exchange as a list shows it. `charge` is None until it is settled."""

    exchange: Exchange
    key: KeyView | None
    charge: ChargeView | None

    @property
    def public_id(self) -> str:
        return request_id(self.exchange.id)

    @property
    def completion_id(self) -> str:
        return completion_id(self.exchange.id)

    @property
    def status(self) -> str:
        """One of `STATUSES`."""
        if self.charge is None:
            return ESTIMATING if self.exchange.state == ExchangeState.ESTIMATING else OPEN
        known = STATUS_OF_OUTCOME.get(self.charge.outcome)
        return known or (AT_ESTIMATE if self.charge.is_estimated else SETTLED)

    @property
    def last_attempt(self) -> dict[str, Any]:
        attempts = self.exchange.attempts
        return attempts[-1] if attempts else {}


@dataclass(frozen=True, slots=True)
class ExchangeView(ExchangeRow):
    """All there is to say about one exchange: behind its page, and GET /v1/requests/{id}."""

    legs: LegsView
    entries: tuple[LedgerEntry, ...]


@dataclass(frozen=True, slots=True)
class ExchangeFilters:
    """What a list is narrowed to; None and False narrow nothing. `since` ≤ created < `until`."""

    is_test: bool | None = None
    model: str | None = None
    key_public_id: str | None = None
    status: str | None = None
    is_stream: bool | None = None
    errors_only: bool = False
    estimates_only: bool = False
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ExchangePage:
    """Newest first. `older` is the cursor of the next page, None on the last one."""

    rows: tuple[ExchangeRow, ...]
    older: UUID | None


def exchange_view(tenant_id: int, exchange_id: UUID) -> ExchangeView | None:
    exchange = _of_tenant(tenant_id).filter(id=exchange_id).first()
    if exchange is None:
        return None
    (row,) = _rows(tenant_id, [exchange])
    transcript = Transcript.objects.filter(tenant_id=tenant_id, exchange_id=exchange_id).first()
    transfers = Transfer.objects.filter(link=exchange_id, tenant_id=tenant_id).order_by("id")
    return ExchangeView(
        exchange=exchange,
        key=row.key,
        charge=row.charge,
        legs=legs_of(exchange, transcript),
        entries=ledger_entries(list(transfers)),
    )


def exchange_row(tenant_id: int, exchange_id: UUID) -> ExchangeRow | None:
    """Return the exchange without its transcript."""
    exchange = _of_tenant(tenant_id).filter(id=exchange_id).first()
    return None if exchange is None else _rows(tenant_id, [exchange])[0]


def rows_of(tenant_id: int, exchange_ids: Iterable[UUID]) -> tuple[ExchangeRow, ...]:
    """Return those of these exchanges that are the tenant's, newest first."""
    found = _of_tenant(tenant_id).filter(id__in=list(exchange_ids)).order_by("-id")
    return _rows(tenant_id, list(found))


def list_exchanges(
    tenant_id: int,
    filters: ExchangeFilters,
    *,
    older_than: UUID | None = None,
    limit: int = PAGE_ROWS,
) -> ExchangePage:
    """Return one page; `older_than` is the cursor, which is an exchange's id."""
    limit = max(1, min(limit, PAGE_ROWS_MAX))
    found = filtered(tenant_id, filters)
    page = paging.page_of(found, "id", older_than=older_than, limit=limit)
    return ExchangePage(_rows(tenant_id, page.rows), page.older)


def newer_cursor(
    tenant_id: int, filters: ExchangeFilters, *, newer_than: UUID, limit: int = PAGE_ROWS
) -> UUID | None:
    """Return the cursor of the page before the one that starts at `newer_than`."""
    found = filtered(tenant_id, filters)
    cursor: UUID | None = paging.newer_cursor(found, "id", newer_than=newer_than, limit=limit)
    return cursor


def first_id_at(moment: datetime) -> UUID:
    """Return the smallest id that an exchange of this moment can have: ids carry their time."""
    milliseconds = int(moment.timestamp() * 1_000)
    return UUID(int=min(max(milliseconds, 0) << _RANDOM_BITS, _MOST_UUID))


def _of_tenant(tenant_id: int) -> QuerySet[Exchange]:
    return Exchange.objects.filter(tenant_id=tenant_id).select_related("price", "terms")


def filtered(tenant_id: int, filters: ExchangeFilters) -> QuerySet[Exchange]:
    """Return what the filters leave of the tenant's exchanges, in no order."""
    found = _of_tenant(tenant_id)
    wanted: dict[str, Any] = {
        "is_test": filters.is_test,
        "model": filters.model,
        "is_stream": filters.is_stream,
    }
    found = found.filter(**{name: value for name, value in wanted.items() if value is not None})
    if filters.key_public_id is not None:
        keys = ApiKey.objects.filter(tenant_id=tenant_id, public_id=filters.key_public_id)
        found = found.filter(key_id__in=list(keys.values_list("pk", flat=True)))
    if filters.since is not None:
        found = found.filter(id__gte=first_id_at(filters.since))
    if filters.until is not None:
        found = found.filter(id__lt=first_id_at(filters.until))
    if filters.status is not None:
        found = _with_status(found, tenant_id, filters.status)
    if filters.errors_only:
        found = found.filter(_charged_as(tenant_id, Q(outcome__in=ERROR_OUTCOMES)))
    if filters.estimates_only:
        found = found.filter(_charged_as(tenant_id, _is_estimated()))
    return found


def _with_status(found: QuerySet[Exchange], tenant_id: int, status: str) -> QuerySet[Exchange]:
    if status in {OPEN, ESTIMATING}:
        return found.filter(state=status)
    outcomes = [outcome for outcome, named in STATUS_OF_OUTCOME.items() if named == status]
    if outcomes:
        return found.filter(_charged_as(tenant_id, Q(outcome__in=outcomes)))
    ordinary = ~Q(outcome__in=list(STATUS_OF_OUTCOME))
    estimated = _is_estimated() if status == AT_ESTIMATE else ~_is_estimated()
    return found.filter(state=ExchangeState.SETTLED).filter(
        _charged_as(tenant_id, ordinary & estimated)
    )


def _is_estimated() -> Q:
    flags = Q(flags__isnull=False) & (
        Q(flags__contains=[PROMPT_ESTIMATED]) | Q(flags__contains=[COMPLETION_ESTIMATED])
    )
    return Q(usage_source=UsageSource.ESTIMATE) | flags


def _charged_as(tenant_id: int, condition: Q) -> Exists:
    charges = Charge.objects.filter(condition, exchange_id=OuterRef("pk"), tenant_id=tenant_id)
    return Exists(charges)


def _rows(tenant_id: int, exchanges: Sequence[Exchange]) -> tuple[ExchangeRow, ...]:
    """Bring in charges and keys with one query each."""
    ids = [exchange.id for exchange in exchanges]
    charges = Charge.objects.filter(tenant_id=tenant_id, exchange_id__in=ids)
    by_exchange = {charge.exchange_id: charge for charge in charges}
    keys = _keys(tenant_id, {exchange.key_id for exchange in exchanges})
    return tuple(
        ExchangeRow(
            exchange=exchange,
            key=keys.get(exchange.key_id),
            charge=charge_view(exchange, by_exchange[exchange.id])
            if exchange.id in by_exchange
            else None,
        )
        for exchange in exchanges
    )


def _keys(tenant_id: int, key_ids: Iterable[int]) -> dict[int, KeyView]:
    found = ApiKey.objects.filter(tenant_id=tenant_id, pk__in=list(key_ids))
    return {key.pk: KeyView(key.public_id, key.name, key.masked) for key in found}
