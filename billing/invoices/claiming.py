"""Claiming the exchanges of a draft by sets: a million of them are one statement.

A row for each says that it is on the invoice, and in which part. What they add up to comes back a
row for each part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import connection

from billing.errors import UnratedCharges
from billing.invoices.amounts import Part
from billing.invoices.months import Month
from billing.models import Invoice
from billing.rates import rates_of
from billing.rating import TOKEN_CLASSES

LEEWAY: Final = timedelta(days=1)  # between the time in an exchange's id, its row, and ours
EPOCH: Final = datetime.fromtimestamp(0, UTC)
WORK_MEMORY: Final = "256MB"  # of one sort or hash: a million exchanges without files

# The first moment at which an exchange of the tenant may wait for an invoice after this one.
_OPEN_FROM: Final = """
SELECT min(created_at) FROM billing_exchange
WHERE state <> 'settled' AND tenant_id = %s AND currency = %s AND NOT is_test
"""

_RELEASED: Final = """
SELECT r.exchange_id FROM billing_invoiceexchange r
WHERE r.tenant_id = %s AND r.is_released AND NOT EXISTS (
    SELECT FROM billing_invoiceexchange m
    WHERE m.exchange_id = r.exchange_id AND m.tenant_id = r.tenant_id AND NOT m.is_released)
ORDER BY r.exchange_id LIMIT 1
"""

# An exchange's id carries its time to within a moment: it finds the partitions, created_at decides.
_VERSIONS: Final = """
SELECT DISTINCT price_id, terms_id FROM billing_exchange
WHERE tenant_id = %(tenant)s AND price_id IS NOT NULL
  AND id >= %(first_id)s AND id < farthing_first_uuid(%(last_at)s)
"""

SUMS: Final = ", ".join(
    f"sum(c.{name}_tokens)::bigint AS {name}, "
    f"count(*) FILTER (WHERE c.{name}_tokens > 0) AS {name}_count"
    for name in TOKEN_CLASSES
)
_TOKENS: Final = ", ".join(f"c.{name}_tokens" for name in TOKEN_CLASSES)

# Claim what is on no invoice, and answer what it adds up to, a row for each part. Those that no
# price rated are one part, under price 0 and at no model: clients may name any.
_CLAIM: Final = f"""
WITH rates AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(rates)s::jsonb)
        AS r(price_id bigint, terms_id bigint, above bigint, up_to bigint)
), candidates AS MATERIALIZED (
    SELECT e.id, coalesce(r.price_id, 0) AS price_id, coalesce(r.terms_id, 0) AS terms_id,
           coalesce(r.above, -1) AS above,
           CASE WHEN r.price_id IS NULL THEN '' ELSE e.model END AS model,
           c.charge_nanos, c.shortfall_nanos, {_TOKENS}
    FROM billing_exchange e
    JOIN billing_charge c ON c.exchange_id = e.id AND c.tenant_id = e.tenant_id
    CROSS JOIN LATERAL (
        SELECT c.input_tokens + c.cached_input_tokens + c.cache_write_tokens
               + c.image_input_tokens + c.audio_input_tokens AS prompt_tokens) p
    LEFT JOIN rates r ON c.usage_source <> 'none' AND r.price_id = e.price_id
                     AND r.terms_id = coalesce(e.terms_id, 0)
                     AND p.prompt_tokens > r.above AND p.prompt_tokens <= r.up_to
    WHERE e.tenant_id = %(tenant)s AND e.currency = %(currency)s AND NOT e.is_test
      AND e.state = 'settled' AND e.created_at < %(ends_at)s
      AND e.id >= %(first_id)s AND e.id < farthing_first_uuid(%(last_at)s)
      AND NOT EXISTS (
          SELECT FROM billing_invoiceexchange m
          WHERE m.exchange_id = e.id AND m.tenant_id = e.tenant_id AND NOT m.is_released)
), parts AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY c.price_id = 0, c.model, c.price_id, c.terms_id, c.above)
               AS part,
           c.model, c.price_id, c.terms_id, c.above, count(*) AS exchanges,
           sum(c.charge_nanos)::bigint AS charge_nanos,
           sum(c.shortfall_nanos)::bigint AS shortfall_nanos, {SUMS}
    FROM candidates c GROUP BY c.model, c.price_id, c.terms_id, c.above
), claimed AS (
    INSERT INTO billing_invoiceexchange (exchange_id, tenant_id, invoice_id, part)
    SELECT c.id, %(tenant)s, %(invoice)s, p.part
    FROM candidates c JOIN parts p USING (model, price_id, terms_id, above)
)
SELECT * FROM parts ORDER BY part
"""  # noqa: S608  # names of our own columns


@dataclass(frozen=True, slots=True)
class Reach:
    """The exchanges that a draft looks at: from an id to the month's end, and the next one's."""

    first_id: UUID
    ends_at: datetime
    open_from: datetime


def reach_of(tenant_id: int, currency: str, month: Month) -> Reach:
    """Asked before the exchanges are claimed: what settles meanwhile is asked for twice."""
    last = Invoice.objects.filter(tenant_id=tenant_id, currency=currency).order_by("pk").last()
    since = EPOCH if last is None else max(min(last.open_from, month.starts_at) - LEEWAY, EPOCH)
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('work_mem', %s, true)", [WORK_MEMORY])
        cursor.execute(_OPEN_FROM, [tenant_id, currency])
        (oldest_at,) = cursor.fetchone()
        cursor.execute("SELECT farthing_first_uuid(%s)", [since])
        (first_id,) = cursor.fetchone()
        cursor.execute(_RELEASED, [tenant_id])
        released = cursor.fetchone()
    return Reach(
        first_id=min([first_id, *(released or ())]),
        ends_at=month.ends_at,
        open_from=min(oldest_at or month.ends_at, month.ends_at),
    )


def claim_exchanges(invoice: Invoice, reach: Reach) -> list[Part]:
    asked: dict[str, Any] = {
        "tenant": invoice.tenant_id,
        "currency": invoice.currency,
        "invoice": invoice.pk,
        "first_id": reach.first_id,
        "ends_at": reach.ends_at,
        "last_at": reach.ends_at + LEEWAY,
    }
    with connection.cursor() as cursor:
        cursor.execute(_VERSIONS, asked)
        rates = rates_of(cursor.fetchall())
        cursor.execute(_CLAIM, {**asked, "rates": orjson.dumps(rates).decode()})
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return parts_of(rows, rates)


def parts_of(rows: Sequence[dict[str, Any]], rates: Sequence[dict[str, Any]]) -> list[Part]:
    """Rows of sums, each with the unit prices of its version. Raises UnratedCharges."""
    versions = {(rate["price_id"], rate["terms_id"], rate["above"]): rate for rate in rates}
    return [
        _part(row, versions.get((row["price_id"], row["terms_id"], row["above"]))) for row in rows
    ]


def _part(row: dict[str, Any], rate: dict[str, Any] | None) -> Part:
    if rate is None and (row["charge_nanos"] or row["shortfall_nanos"]):
        raise UnratedCharges("There are charges that no price version explains.")
    return Part(
        number=row["part"],
        model=row["model"],
        price_id=row["price_id"] or None,
        terms_id=row["terms_id"] or None,
        above_prompt_tokens=row["above"] if row["above"] >= 0 else None,
        units=None if rate is None else {name: rate[name] for name in TOKEN_CLASSES},
        per_request_nanos=0 if rate is None else rate["per_request"],
        exchange_count=row["exchanges"],
        charge_nanos=row["charge_nanos"],
        shortfall_nanos=row["shortfall_nanos"],
        quantities={name: row[name] for name in TOKEN_CLASSES},
        counts={name: row[f"{name}_count"] for name in TOKEN_CLASSES},
    )
