"""Rows of a batch are found by their keys, whatever the planner knows of the tables.

A month's partition may have been analysed while it was empty, when a gateway's connections make
their plans. It is then taken for a row until it is analysed again: thousands of requests later.
"""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from billing.ledger import payload
from billing.writer import ESTIMATE, HOLD, SETTLE, Item
from gateway.runtime.process import LEDGER_OPTIONS, database_url
from tests.billing.acts import a_hold, a_settlement

MANY, BATCH = 400, 8
TENANT = SimpleNamespace(pk=1, currency="USD")
# As at a month's beginning, for this transaction alone.
EMPTY = """
ALTER TABLE billing_exchange DISABLE TRIGGER append_only_truncate;
ALTER TABLE billing_charge DISABLE TRIGGER append_only_truncate;
TRUNCATE billing_exchange, billing_charge;
ANALYZE billing_exchange, billing_charge;
"""
READ = """
SELECT coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::bigint FROM pg_stat_xact_user_tables
WHERE relname LIKE 'billing_exchange%' OR relname LIKE 'billing_charge%'
"""


class Ledger:
    """A gateway's connection, whose plans are made while the tables are empty."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def ask(self, statement: str, items: list[Item]) -> list[str]:
        rows = self._connection.execute(statement, [payload(iter(items))], prepare=True)
        return [row[1] for row in rows.fetchall()]

    def opened(self, count: int) -> list[Any]:
        """Free exchanges, which need no wallet."""
        holds = [a_hold(TENANT, 0) for _ in range(count)]
        assert set(self.ask(HOLD, [hold.item() for hold in holds])) == {"held"}
        return holds

    def rows_read(self) -> int:
        row = self._connection.execute(READ).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def ledger(db) -> Iterator[Ledger]:
    with psycopg.connect(database_url(), options=LEDGER_OPTIONS) as connection:
        connection.execute(EMPTY)
        yield Ledger(connection)
        connection.rollback()


def settled(hold: Any) -> Item:
    return a_settlement(hold, 0).item()


def counted(hold: Any) -> Item:
    now = datetime.now(UTC)
    return {
        "id": hold.exchange_id,
        "tenant_id": hold.tenant_id,
        "is_ready": True,
        "vendor_model": "m",
        "family": None,
        "job": {"outcome": "answered"},
        "request": base64.b64encode(b"x").decode(),
        "answer": "",
        "now": now,
        "due_at": now,
    }


@pytest.mark.parametrize(
    ("statement", "item", "word"),
    [(SETTLE, settled, "settled"), (ESTIMATE, counted, "kept")],
    ids=["settle", "estimate"],
)
def test_a_batch_reads_its_own_rows_alone(ledger: Ledger, statement, item, word) -> None:
    (first,) = ledger.opened(1)
    ledger.ask(statement, [item(first)])  # the plans are made
    batch = ledger.opened(MANY)[:BATCH]
    before = ledger.rows_read()
    assert ledger.ask(statement, [item(hold) for hold in batch]) == [word] * BATCH
    assert ledger.rows_read() - before < 8 * BATCH
