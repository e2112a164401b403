"""What the database itself refuses, whoever asks."""

import pytest
from django.db import DatabaseError, connection, transaction

KEPT = (
    "billing_adjustment",
    "billing_charge",
    "billing_credit",
    "billing_exchange",
    "billing_invoice",
    "billing_invoiceexchange",
    "billing_invoiceline",
    "billing_payment",
    "billing_planfee",
    "billing_planterms",
    "billing_price",
    "billing_redemptioncode",
    "billing_tenantplan",
    "billing_transfer",
)


@pytest.mark.django_db
@pytest.mark.parametrize("table", KEPT)
def test_a_table_of_money_cannot_be_emptied_at_once(table: str) -> None:
    with (
        pytest.raises(DatabaseError, match="TRUNCATE refused"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"TRUNCATE {table} CASCADE")


@pytest.mark.django_db
def test_no_table_that_refuses_a_change_of_a_row_is_forgotten() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger"
            " WHERE tgname IN ('append_only', 'keep_decided', 'keep_settled') AND tgparentid = 0"
            " AND tgrelid::regclass::text LIKE 'billing\\_%'"
        )
        guarded = {table for (table,) in cursor.fetchall()}
    assert guarded <= set(KEPT)
