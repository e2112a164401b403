"""The ledger's acts, hold, extend and settle, as typed values in and out.

The SQL stands in migrations/sql/0005_ledger.sql. A gateway sends items through a `GroupCommit`;
workers and commands send them with `settle_now`. Both ways run the same statement.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from django.db import connection, transaction

from billing.storable import encode_item
from billing.usage import Usage
from billing.writer import SETTLE, Item, Row

NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Hold:
    """An exchange to open and the money to reserve for it. `hold_nanos` 0 needs no wallet."""

    exchange_id: UUID
    tenant_id: int
    key_id: int
    process_id: int
    price_id: int | None
    hold_nanos: int
    currency: str
    model: str
    created_at: datetime
    is_stream: bool
    is_test: bool
    client_request_id: str | None = None
    terms_id: int | None = None

    def item(self) -> Item:
        return {
            "id": self.exchange_id,
            "tenant_id": self.tenant_id,
            "key_id": self.key_id,
            "process_id": self.process_id,
            "price_id": self.price_id,
            "terms_id": self.terms_id,
            "hold_nanos": self.hold_nanos,
            "currency": self.currency,
            "model": self.model,
            "created_at": self.created_at,
            "is_stream": self.is_stream,
            "is_test": self.is_test,
            "client_request_id": self.client_request_id,
        }


@dataclass(frozen=True, slots=True)
class LimitPassed:
    """The spend limit that is in the way of `needed_nanos` more.

    `scope` is key, member or tenant; `period` is day, week, month or total. `resets_at` is None
    for a total. With `held_nanos` gone it might fit: others' requests that end make room.
    """

    limit_id: int
    scope: str
    period: str
    amount_nanos: int
    posted_nanos: int
    held_nanos: int
    needed_nanos: int
    resets_at: datetime | None

    @property
    def frees_soon(self) -> bool:
        """True if only the holds of other requests are in the way."""
        return self.posted_nanos + self.needed_nanos <= self.amount_nanos


def _limit_passed(answer: dict[str, Any] | str | None) -> LimitPassed | None:
    """JSON, which Django's connections leave as the text that it is."""
    if answer is None:
        return None
    found = orjson.loads(answer) if isinstance(answer, str) else answer
    resets_at = found["resets_at"]
    moment = None if resets_at is None else datetime.fromisoformat(resets_at)
    return LimitPassed(**{**found, "resets_at": moment})


@dataclass(frozen=True, slots=True)
class HoldAnswer:
    """Whether the money is reserved, and what wallet and credits looked like afterwards, summed.

    `limit` is what refused it; None in a refusal means the money.
    """

    is_held: bool
    posted_nanos: int
    held_nanos: int
    credit_limit_nanos: int
    limit: LimitPassed | None = None

    @property
    def available_nanos(self) -> int:
        return self.posted_nanos + self.credit_limit_nanos - self.held_nanos

    @property
    def room_nanos(self) -> int:
        """What a hold could be that is not refused for the same reason."""
        limit = self.limit
        if limit is None:
            return self.available_nanos
        return limit.amount_nanos - limit.posted_nanos - limit.held_nanos


def hold_answer(row: Row) -> HoldAnswer:
    return HoldAnswer(row[1] == "held", row[2], row[3], row[4], _limit_passed(row[5]))


@dataclass(frozen=True, slots=True)
class Extension:
    """More money for an open exchange: `hold_nanos` is what it is to hold in all."""

    exchange_id: UUID
    tenant_id: int
    currency: str
    hold_nanos: int
    extended_at: datetime

    def item(self) -> Item:
        return {
            "id": self.exchange_id,
            "tenant_id": self.tenant_id,
            "currency": self.currency,
            "hold_nanos": self.hold_nanos,
            "extended_at": self.extended_at,
        }


@dataclass(frozen=True, slots=True)
class ExtendAnswer:
    """`outcome`: extended, refused (nothing changed), or closed (settled, or never opened).

    `hold_nanos` is what the exchange holds now, in all.
    """

    outcome: str
    hold_nanos: int
    limit: LimitPassed | None = None

    @property
    def is_extended(self) -> bool:
        return self.outcome == "extended"


def extend_answer(row: Row) -> ExtendAnswer:
    return ExtendAnswer(row[1], row[2] or 0, _limit_passed(row[3]))


@dataclass(frozen=True, slots=True)
class Facts:
    """How an exchange ended, apart from money. None leaves what is already known."""

    ended_at: datetime | None = None
    first_byte_ms: int | None = None
    duration_ms: int | None = None
    status_code: int | None = None
    error_code: str | None = None
    finish_reason: str | None = None
    attempts: list[dict[str, Any]] | None = None
    message: dict[str, Any] | None = None

    def item(self) -> Item:
        return {
            "ended_at": self.ended_at,
            "first_byte_ms": self.first_byte_ms,
            "duration_ms": self.duration_ms,
            "status_code": self.status_code,
            "error_code": self.error_code,
            "finish_reason": self.finish_reason,
            "attempts": self.attempts,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class Settlement:
    """The one resolution of an exchange. `cost_nanos` is what the usage costs by its price."""

    exchange_id: UUID
    tenant_id: int
    currency: str
    cost_nanos: int
    usage: Usage
    usage_source: str
    outcome: str
    settled_at: datetime
    facts: Facts = field(default_factory=Facts)
    flags: tuple[str, ...] = ()
    vendor_usage: Any = None
    estimate: dict[str, Any] | None = None

    def item(self) -> Item:
        return {
            "id": self.exchange_id,
            "tenant_id": self.tenant_id,
            "currency": self.currency,
            "cost_nanos": self.cost_nanos,
            "input_tokens": self.usage.input_tokens,
            "cached_input_tokens": self.usage.cached_input_tokens,
            "cache_write_tokens": self.usage.cache_write_tokens,
            "output_tokens": self.usage.output_tokens,
            "reasoning_tokens": self.usage.reasoning_tokens,
            "image_input_tokens": self.usage.image_input_tokens,
            "audio_input_tokens": self.usage.audio_input_tokens,
            "audio_output_tokens": self.usage.audio_output_tokens,
            "usage_source": self.usage_source,
            "outcome": self.outcome,
            "settled_at": self.settled_at,
            "flags": list(self.flags) or None,
            "vendor_usage": self.vendor_usage,
            "estimate": self.estimate,
            **self.facts.item(),
        }


@dataclass(frozen=True, slots=True)
class SettleAnswer:
    """`outcome`: settled, already (somebody else did; nothing was written now), or unknown.

    late: the sweep did, and this says another cost; it is kept, and `billing.late` corrects by it.
    """

    outcome: str
    charge_nanos: int
    shortfall_nanos: int

    @property
    def is_settled_now(self) -> bool:
        return self.outcome == "settled"


def settle_answer(row: Row) -> SettleAnswer:
    return SettleAnswer(row[1], row[2] or 0, row[3] or 0)


def settle_now(settlements: Sequence[Settlement]) -> list[SettleAnswer]:
    """Settle through Django's connection, inside the caller's transaction if there is one."""
    with _index_plans(), connection.cursor() as cursor:
        cursor.execute(SETTLE, [payload(settlement.item() for settlement in settlements)])
        rows = sorted(cursor.fetchall())
    return [settle_answer(row) for row in rows]


def payload(items: Iterator[Item]) -> str:
    numbered = ({**item, "n": number} for number, item in enumerate(items))
    return (b"[%b]" % b",".join(map(encode_item, numbered))).decode()


@contextmanager
def _index_plans() -> Iterator[None]:
    """A plan made while a table was small must not scan it when it is large."""
    with transaction.atomic(), connection.cursor() as cursor:
        for method in ("seqscan", "hashjoin", "mergejoin"):
            cursor.execute(f"SET LOCAL enable_{method} = off")
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        yield
