"""Fill one database for the benchmark: ``python -m bench.seed SPECIFICATION OUTPUT``.

SPECIFICATION is a `Ground` as JSON. The keys' secrets exist here only, so they are written to
OUTPUT, which is its owner's alone: {"keys": […], "limited": […], "hot": "…"}.
"""

import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import django
from django.db import connection, transaction

from bench import wire
from gateway.supervisor.files import write_private

ACTOR = "bench"
CREDIT_UNITS = 1_000_000
VENDOR = "bench"
CONNECTIONS = 2_000
LIMITED_PER_MINUTE, LIMITED_AT_ONCE = 1_000_000, 10_000  # never reached, always counted
FILLED_DAYS = 20


@dataclass(frozen=True, slots=True)
class Ground:
    """What a database holds. `filled_rows` exchanges, each with charge, transfers, transcript."""

    name: str
    vendor_url: str
    tenants: int = 10
    keys_per_tenant: int = 1
    more_models: int = 0
    filled_rows: int = 0
    with_limited_keys: bool = False

    def text(self) -> str:
        return json.dumps(asdict(self))


def extra_models(count: int) -> list[str]:
    return [f"extra-{number:04d}" for number in range(count)]


def catalog(ground: Ground) -> str:
    lines = [
        "vendors:",
        (
            f"  - {{name: {VENDOR}, base_url: '{ground.vendor_url}', credential: bench-credential,"
            f" max_connections: {CONNECTIONS}}}"
        ),
        "models:",
    ]
    names = {name: name for name in wire.MODELS}
    names |= dict.fromkeys(extra_models(ground.more_models), wire.FAST)
    for name, vendor_model in names.items():
        lines += [
            f"  - name: {name}",
            "    family: openai-o200k",
            "    routes:",
            f"      - {{vendor: {VENDOR}, vendor_model: {vendor_model}}}",
            "    prices:",
            "      - {input: 0.15, cached_input: 0.075, output: 0.60}",
        ]
    return "\n".join(lines) + "\n"


def seed(ground: Ground) -> dict[str, object]:
    from gateway.catalog.apply import apply_file

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(catalog(ground))
        file.flush()
        apply_file(Path(file.name), actor=ACTOR)
    with transaction.atomic():
        tenants = [_tenant(f"{ground.name}-{number}") for number in range(ground.tenants)]
        keys = _keys(tenants, ground.keys_per_tenant, {})
        limits = {
            "requests_per_minute": LIMITED_PER_MINUTE,
            "concurrent_requests": LIMITED_AT_ONCE,
        }
        limited = _keys(tenants, 1, limits) if ground.with_limited_keys else []
        hot = _keys([_tenant(f"{ground.name}-hot")], 1, {})[0]
    if ground.filled_rows:
        _fill(ground.filled_rows)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
    return {"keys": keys, "limited": limited, "hot": hot}


def _tenant(slug: str):
    from billing.money import NANOS_PER_UNIT
    from billing.services import top_up
    from keys.services import create_tenant

    tenant = create_tenant(slug, slug, actor=ACTOR)
    top_up(tenant, CREDIT_UNITS * NANOS_PER_UNIT, payment_id=f"first-{slug}", actor=ACTOR)
    return tenant


def _keys(tenants: list, per_tenant: int, limits: dict[str, int]) -> list[str]:
    """In bulk: keys.services.create_key, with its trail, is for people."""
    from keys import secrets
    from keys.models import ApiKey, KeyKind

    made = [(tenant, secrets.make(KeyKind.LIVE)) for _ in range(per_tenant) for tenant in tenants]
    ApiKey.objects.bulk_create(
        ApiKey(
            tenant=tenant,
            kind=KeyKind.LIVE,
            name="bench",
            public_id=secret.public_id,
            secret_hash=secret.fingerprint,
            last_four=secret.last_four,
            **limits,
        )
        for tenant, secret in made
    )
    return [secret.text for _, secret in made]


FILL = """
CREATE TEMPORARY TABLE filled ON COMMIT DROP AS
SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
        || substr(mixed, 1, 3) || '8' || substr(mixed, 4, 15))::uuid AS id, at, tenant_id, key_id
FROM (SELECT now() - random() * interval '{days} days' AS at, md5(g::text) AS mixed,
             k.tenant_id, k.id AS key_id
      FROM generate_series(1, {rows}) g
      JOIN (SELECT id, tenant_id, row_number() OVER (ORDER BY id) - 1 AS n,
                   count(*) OVER () AS many FROM keys_apikey) k ON k.n = g % k.many) drawn
ORDER BY 1;

INSERT INTO billing_exchange (id, tenant_id, key_id, process_id, price_id, hold_nanos, created_at,
    ended_at, settled_at, first_byte_ms, duration_ms, status_code, is_stream, state, currency,
    model, finish_reason, attempts)
SELECT f.id, f.tenant_id, f.key_id, 1, p.id, 45000, f.at, f.at + interval '1 second',
    f.at + interval '1 second', 300, 1000, 200, false, 'settled', 'USD', p.model, 'stop',
    '[{{"n": 1, "vendor": "bench", "vendor_model": "bench-0", "status": 200}}]'
FROM filled f CROSS JOIN (SELECT id, model FROM billing_price ORDER BY id LIMIT 1) p;

INSERT INTO billing_charge (exchange_id, tenant_id, charge_nanos, input_tokens, output_tokens,
    created_at, usage_source, outcome, vendor_usage)
SELECT id, tenant_id, 10350, 41, 7, at, 'vendor', 'answered',
    '{{"prompt_tokens": 41, "completion_tokens": 7, "total_tokens": 48}}'
FROM filled;

INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id, amount_nanos,
    phase, code, created_at)
SELECT f.id, f.tenant_id, w.id, r.id, s.amount, s.phase, s.code, f.at
FROM filled f
JOIN billing_account w ON w.tenant_id = f.tenant_id AND w.kind = 'wallet'
JOIN billing_account r ON r.tenant_id IS NULL AND r.kind = 'revenue'
CROSS JOIN (VALUES (45000, 1, 'hold'), (10350, 2, 'charge')) s(amount, phase, code);

INSERT INTO gateway_transcript (exchange_id, tenant_id, legs, client_request, vendor_answer)
SELECT id, tenant_id, jsonb_build_object('filled', repeat('x', 300)),
    decode(repeat('00', 200), 'hex'), decode(repeat('00', 200), 'hex')
FROM filled;
"""


def _fill(rows: int) -> None:
    """History as the ledger writes it, in bulk; the wallets' balances are left as they are."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = off")
        cursor.execute("SET LOCAL work_mem = '256MB'")
        cursor.execute(FILL.format(rows=rows, days=FILLED_DAYS))


def main(arguments: list[str]) -> None:
    specification, output = arguments
    django.setup()
    write_private(Path(output), json.dumps(seed(Ground(**json.loads(specification)))))


if __name__ == "__main__":
    main(sys.argv[1:])
