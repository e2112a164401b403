"""The ledger's audit: everything again from the transfers, and what differs.

Each check is one query that answers the rows that break a rule. Zero rows is the only pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from billing.models import AuditRun

DIFFERENCES_SHOWN = 50

FIGURES = {
    "accounts": "SELECT count(*) FROM billing_account",
    "transfers": "SELECT count(*) FROM billing_transfer",
    "exchanges": "SELECT count(*) FROM billing_exchange",
    "charges": "SELECT count(*) FROM billing_charge",
    "open_holds": "SELECT count(*) FROM billing_exchange WHERE state <> 'settled'",
    "held_nanos": "SELECT coalesce(sum(held_nanos), 0)::bigint FROM billing_account",
}

# A wallet's balance by its transfers: what came in, less what was posted, and what is pending.
CHECKS = {
    "balance differs from its transfers": """
        SELECT a.id, a.posted_nanos, coalesce(t.posted, 0) AS recomputed
        FROM billing_account a
        LEFT JOIN (
            SELECT account_id, sum(amount)::bigint AS posted FROM (
                SELECT credit_account_id AS account_id, amount_nanos AS amount
                FROM billing_transfer WHERE phase IN (0, 2)
                UNION ALL
                SELECT debit_account_id, -amount_nanos
                FROM billing_transfer WHERE phase IN (0, 2)
            ) moves GROUP BY account_id
        ) t ON t.account_id = a.id
        WHERE a.kind = 'wallet' AND a.posted_nanos <> coalesce(t.posted, 0)
    """,
    "held money differs from its pending transfers": """
        SELECT a.id, a.held_nanos, coalesce(t.held, 0) AS recomputed
        FROM billing_account a
        LEFT JOIN (
            SELECT p.debit_account_id AS account_id, sum(p.amount_nanos)::bigint AS held
            FROM billing_transfer p
            WHERE p.phase = 1 AND NOT EXISTS (
                SELECT 1 FROM billing_transfer r
                WHERE r.link = p.link AND r.tenant_id = p.tenant_id AND r.phase IN (2, 3))
            GROUP BY p.debit_account_id
        ) t ON t.account_id = a.id
        WHERE a.kind = 'wallet' AND a.held_nanos <> coalesce(t.held, 0)
    """,
    "hold of an exchange differs from its pending transfers": """
        SELECT e.id, e.hold_nanos, coalesce(t.held, 0) AS recomputed
        FROM billing_exchange e
        LEFT JOIN (SELECT link, sum(amount_nanos)::bigint AS held
                   FROM billing_transfer WHERE phase = 1 GROUP BY link) t ON t.link = e.id
        WHERE e.hold_nanos <> coalesce(t.held, 0)
    """,
    "settled exchange without exactly one resolution": """
        SELECT e.id, count(c.exchange_id) AS charges
        FROM billing_exchange e
        LEFT JOIN billing_charge c ON c.exchange_id = e.id AND c.tenant_id = e.tenant_id
        WHERE e.state = 'settled'
        GROUP BY e.id HAVING count(c.exchange_id) <> 1
    """,
    "charge of an exchange that is not settled": """
        SELECT c.exchange_id, e.state
        FROM billing_charge c
        LEFT JOIN billing_exchange e ON e.id = c.exchange_id AND e.tenant_id = c.tenant_id
        WHERE e.state IS DISTINCT FROM 'settled'
    """,
    "charge differs from its posted transfer": """
        SELECT c.exchange_id, c.charge_nanos, coalesce(t.posted, 0) AS posted
        FROM billing_charge c
        LEFT JOIN (SELECT link, sum(amount_nanos)::bigint AS posted
                   FROM billing_transfer WHERE phase = 2 GROUP BY link) t ON t.link = c.exchange_id
        WHERE c.charge_nanos <> coalesce(t.posted, 0)
    """,
    "hold neither posted nor voided": """
        SELECT e.id, e.hold_nanos
        FROM billing_exchange e
        WHERE e.state = 'settled' AND e.hold_nanos > 0 AND NOT EXISTS (
            SELECT 1 FROM billing_transfer r
            WHERE r.link = e.id AND r.tenant_id = e.tenant_id AND r.phase IN (2, 3))
    """,
    "transfer of an unknown account or exchange": """
        SELECT t.id, t.link
        FROM billing_transfer t
        LEFT JOIN billing_account d ON d.id = t.debit_account_id
        LEFT JOIN billing_account c ON c.id = t.credit_account_id
        WHERE d.id IS NULL OR c.id IS NULL OR d.currency <> c.currency
           OR (t.phase <> 0 AND NOT EXISTS (
                SELECT 1 FROM billing_exchange e
                WHERE e.id = t.link AND e.tenant_id = t.tenant_id))
    """,
    "payment without its transfer": """
        SELECT p.external_id, p.amount_nanos
        FROM billing_payment p
        LEFT JOIN billing_transfer t ON t.link = p.link AND t.code = 'top_up'
        WHERE t.amount_nanos IS DISTINCT FROM p.amount_nanos
    """,
    "overspent wallet": """
        SELECT a.id, a.posted_nanos, a.held_nanos FROM billing_account a
        WHERE a.kind = 'wallet' AND a.posted_nanos + a.credit_limit_nanos - a.held_nanos < 0
    """,
}


@dataclass(frozen=True, slots=True)
class Difference:
    rule: str
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AuditReport:
    figures: dict[str, int]
    differences: tuple[Difference, ...] = field(default=())

    @property
    def is_clean(self) -> bool:
        return not self.differences


def audit() -> AuditReport:
    """All checks on one snapshot: traffic may go on meanwhile."""
    is_own_transaction = not connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        if is_own_transaction:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        figures = {name: _number(cursor, query) for name, query in FIGURES.items()}
        differences = [
            Difference(rule, row) for rule, query in CHECKS.items() for row in _rows(cursor, query)
        ]
    return AuditReport(figures, tuple(differences))


def audit_and_keep() -> AuditReport:
    """Run the audit and keep its result, for staff to see."""
    run = AuditRun.objects.create()
    report = audit()
    run.finished_at = timezone.now()
    run.figures = report.figures
    run.differences = [
        {"rule": difference.rule, "row": difference.row}
        for difference in report.differences[:DIFFERENCES_SHOWN]
    ]
    run.save(update_fields=["finished_at", "figures", "differences"])
    return report


def _number(cursor: Any, query: str) -> int:
    cursor.execute(query)
    return int(cursor.fetchone()[0])


def _rows(cursor: Any, query: str) -> Iterator[dict[str, Any]]:
    cursor.execute(f"{query} LIMIT {DIFFERENCES_SHOWN}")
    names = [column.name for column in cursor.description]
    for row in cursor.fetchall():
        yield {
            name: value if isinstance(value, int) else str(value)
            for name, value in zip(names, row, strict=True)
        }
