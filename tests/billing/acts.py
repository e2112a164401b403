"""The ledger's acts as tests do them: one line each, through the statements that gateways send."""

import dataclasses
from datetime import timedelta

from django.db import connection
from django.utils import timezone

from billing.ids import new_exchange_id
from billing.ledger import (
    ExtendAnswer,
    Extension,
    Facts,
    Hold,
    HoldAnswer,
    SettleAnswer,
    Settlement,
    extend_answer,
    hold_answer,
    payload,
    settle_now,
)
from billing.models import Account, Transfer
from billing.usage import Usage
from billing.writer import EXTEND, HOLD

UNIT = 10**9
DAY = timedelta(days=1)


def wallet_of(tenant) -> Account:
    return Account.objects.get(tenant=tenant, kind="wallet")


def credits_of(tenant) -> list[tuple[int, int]]:
    """Posted and held nanos, the soonest to expire first."""
    found = Account.objects.filter(tenant=tenant, kind="credit").order_by("expires_at", "pk")
    return list(found.values_list("posted_nanos", "held_nanos"))


def a_hold(tenant, nanos: int, **changes) -> Hold:
    hold = Hold(
        exchange_id=new_exchange_id(),
        tenant_id=tenant.pk,
        key_id=1,
        process_id=1,
        price_id=None,
        hold_nanos=nanos,
        currency=tenant.currency,
        model="m",
        created_at=timezone.now(),
        is_stream=False,
        is_test=False,
    )
    return dataclasses.replace(hold, **changes)


def hold_now(*holds: Hold) -> list[HoldAnswer]:
    with connection.cursor() as cursor:
        cursor.execute(HOLD, [payload(hold.item() for hold in holds)])
        return [hold_answer(row) for row in sorted(cursor.fetchall(), key=lambda row: row[0])]


def held(tenant, nanos: int, **changes) -> Hold:
    hold = a_hold(tenant, nanos, **changes)
    assert hold_now(hold)[0].is_held
    return hold


def extend_now(hold: Hold, nanos: int, **changes) -> ExtendAnswer:
    extension = Extension(
        exchange_id=hold.exchange_id,
        tenant_id=hold.tenant_id,
        currency=hold.currency,
        hold_nanos=nanos,
        extended_at=timezone.now(),
    )
    extension = dataclasses.replace(extension, **changes)
    with connection.cursor() as cursor:
        cursor.execute(EXTEND, [payload(iter([extension.item()]))])
        return extend_answer(cursor.fetchone())


def a_settlement(hold: Hold, cost_nanos: int, **changes) -> Settlement:
    settlement = Settlement(
        exchange_id=hold.exchange_id,
        tenant_id=hold.tenant_id,
        currency=hold.currency,
        cost_nanos=cost_nanos,
        usage=Usage(input_tokens=3, output_tokens=2),
        usage_source="vendor",
        outcome="answered",
        settled_at=timezone.now(),
        facts=Facts(status_code=200, finish_reason="stop", duration_ms=12),
    )
    return dataclasses.replace(settlement, **changes)


def settle(hold: Hold, cost_nanos: int, **changes) -> SettleAnswer:
    return settle_now([a_settlement(hold, cost_nanos, **changes)])[0]


def entries(hold: Hold) -> list[tuple[str, int, int]]:
    """What was written for an exchange: kind of account, phase, nanos."""
    kinds = dict(Account.objects.values_list("pk", "kind"))
    rows = Transfer.objects.filter(link=hold.exchange_id).order_by("id")
    return [(kinds[row.debit_account_id], row.phase, row.amount_nanos) for row in rows]


def phases(hold: Hold) -> list[tuple[int, int]]:
    return [(phase, nanos) for _, phase, nanos in entries(hold)]
