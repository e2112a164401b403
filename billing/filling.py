"""Exchanges by the million, as the relay leaves them: to measure the ledger, never to bill.

They belong to tenants of their own and are true to every rule of the audit.
"""

from collections.abc import Callable
from typing import Final

from django.db import connection, transaction
from django.utils import timezone

from billing.ids import new_exchange_id
from billing.models import Account, Exchange, Price
from billing.money import NANOS_PER_UNIT
from billing.wallets import open_wallet, top_up
from keys.models import Tenant
from keys.services import create_tenant

EXCHANGES_MAX: Final = 5_000_000
BATCH_EXCHANGES: Final = 50_000
TENANTS: Final = 20
MODEL: Final = "filling"
BALANCE_NANOS: Final = 1_000_000 * NANOS_PER_UNIT
ACTOR: Final = "manage.py fill_ledger"

# A batch of one tenant: opened, held, charged. What relays write beside the money stands in
# attempts and vendor_usage, so that the rows are as long as theirs.
_FILL: Final = """
WITH made AS MATERIALIZED (
    SELECT (substr(farthing_first_uuid(now())::text, 1, 14) || '7'
            || substr(gen_random_uuid()::text, 16))::uuid AS id,
           now() AS at, 20 + (random() * 2000)::bigint AS tokens_in,
           1 + (random() * 800)::bigint AS tokens_out
    FROM generate_series(1, %(count)s)
), rated AS MATERIALIZED (
    SELECT m.*, m.tokens_in * 1000 + m.tokens_out * 4000 AS cost,
           m.tokens_in * 1500 + 4096 * 4000 AS hold
    FROM made m
), opened AS (
    INSERT INTO billing_exchange (id, tenant_id, key_id, process_id, price_id, hold_nanos,
        created_at, ended_at, settled_at, first_byte_ms, duration_ms, status_code, is_stream,
        state, currency, model, finish_reason, attempts)
    SELECT id, %(tenant)s, 1, 1, %(price)s, hold, at, at, at, 312, 2841, 200, true, 'settled',
           'USD', 'filling', 'stop', jsonb_build_array(jsonb_build_object(
               'n', 1, 'vendor', 'benchecho', 'vendor_model', 'echo', 'status', 200,
               'started_ms', 4, 'first_byte_ms', 312, 'ended_ms', 2838))
    FROM rated
), charged AS (
    INSERT INTO billing_charge (exchange_id, tenant_id, charge_nanos, input_tokens,
        output_tokens, created_at, usage_source, outcome, vendor_usage)
    SELECT id, %(tenant)s, cost, tokens_in, tokens_out, at, 'vendor', 'answered',
           jsonb_build_object('prompt_tokens', tokens_in, 'completion_tokens', tokens_out,
               'total_tokens', tokens_in + tokens_out,
               'prompt_tokens_details', jsonb_build_object('cached_tokens', 0))
    FROM rated
), written AS (
    INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,
        amount_nanos, phase, code, created_at)
    SELECT id, %(tenant)s, %(wallet)s, %(revenue)s, hold, 1, 'hold', at FROM rated
    UNION ALL
    SELECT id, %(tenant)s, %(wallet)s, %(revenue)s, cost, 2, 'charge', at FROM rated
)
UPDATE billing_account SET posted_nanos = posted_nanos - (SELECT sum(cost) FROM rated)
WHERE id = %(wallet)s
"""

_TABLES: Final = ("billing_exchange", "billing_transfer", "billing_charge")
_SIZES: Final = """
SELECT coalesce(sum(pg_table_size(inhrelid)), 0)::bigint,
       coalesce(sum(pg_indexes_size(inhrelid)), 0)::bigint
FROM pg_inherits WHERE inhparent = %s::regclass
"""


def fill(exchanges: int, say: Callable[[int], object]) -> None:
    """Add so many settled exchanges; `say` hears how many there are after each batch."""
    if not 0 < exchanges <= EXCHANGES_MAX:
        raise ValueError(f"1 to {EXCHANGES_MAX} exchanges.")
    tenants = [_tenant() for _ in range(TENANTS)]
    price = Price.objects.create(
        model=MODEL,
        currency="USD",
        effective_from=timezone.now(),
        input_nanos=NANOS_PER_UNIT,
        output_nanos=4 * NANOS_PER_UNIT,
    )
    done = 0
    while done < exchanges:
        count = min(BATCH_EXCHANGES, exchanges - done)
        _fill(tenants[done // BATCH_EXCHANGES % TENANTS], price, count)
        done += count
        say(done)


def bytes_per_exchange() -> dict[str, tuple[int, int]]:
    """Bytes of rows and of indexes, by table, for each exchange that is stored."""
    count = max(Exchange.objects.count(), 1)
    return {table: (rows // count, indexes // count) for table, (rows, indexes) in sizes().items()}


def sizes() -> dict[str, tuple[int, int]]:
    """Bytes of rows and of indexes, by table, with what is dead and not yet vacuumed."""
    found = {}
    with connection.cursor() as cursor:
        for table in _TABLES:
            cursor.execute(_SIZES, [table])
            found[table] = cursor.fetchone()
    return found


def _tenant() -> Tenant:
    slug = f"filling-{new_exchange_id().hex[-12:]}"
    tenant = create_tenant("Filling", slug, actor=ACTOR)
    top_up(tenant, BALANCE_NANOS, payment_id=slug, actor=ACTOR)
    return tenant


def _fill(tenant: Tenant, price: Price, count: int) -> None:
    wallet = open_wallet(tenant)
    revenue = Account.objects.get(tenant=None, kind="revenue", currency="USD")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            _FILL,
            {
                "count": count,
                "tenant": tenant.pk,
                "price": price.pk,
                "wallet": wallet.pk,
                "revenue": revenue.pk,
            },
        )
