"""Fill one database for the benchmark: ``python -m bench.seed SPECIFICATION OUTPUT``.

SPECIFICATION is a `Ground` as JSON. The keys' secrets exist here only, so they are written to
OUTPUT, which is its owner's alone: {"keys": […], "limited": […], "hot": "…"}.
"""

import json
import sys
import tempfile
from pathlib import Path

import django

django.setup()

from django.db import connection, transaction  # noqa: E402  # after setup, like all that follows

from bench import wire  # noqa: E402
from bench.ground import Ground, extra_models  # noqa: E402
from billing.ids import new_exchange_id  # noqa: E402
from billing.models import Account, AccountKind, Payment, Phase, Transfer, TransferCode  # noqa: E402
from billing.money import NANOS_PER_UNIT  # noqa: E402
from billing.wallets import top_up  # noqa: E402
from gateway.catalog.apply import apply_file  # noqa: E402
from gateway.supervisor.files import write_private  # noqa: E402
from keys import secrets  # noqa: E402
from keys.models import ApiKey, KeyKind, Tenant  # noqa: E402
from keys.services import create_tenant  # noqa: E402

ACTOR = "bench"
CREDIT_NANOS = 1_000_000 * NANOS_PER_UNIT
VENDOR = "bench"
CONNECTIONS = 2_000
TOTAL_SECONDS = 900  # longer than the longest stream
LIMITED_PER_MINUTE, LIMITED_AT_ONCE = 1_000_000, 10_000  # never reached, always counted


def catalog(ground: Ground) -> str:
    lines = [
        "vendors:",
        (
            f"  - {{name: {VENDOR}, base_url: '{ground.vendor_url}', credential: bench-credential,"
            f" max_connections: {CONNECTIONS}, total_timeout: {TOTAL_SECONDS}}}"
        ),
        "models:",
    ]
    names = {name: name for name in wire.MODELS}
    names |= dict.fromkeys(extra_models(ground.extra_models), wire.FAST)
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
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(catalog(ground))
        file.flush()
        apply_file(Path(file.name), actor=ACTOR)
    with transaction.atomic():
        tenants = _tenants(ground.name, ground.tenants)
        keys = _keys(tenants, ground.keys_per_tenant, {})
        limits = {
            "requests_per_minute": LIMITED_PER_MINUTE,
            "concurrent_requests": LIMITED_AT_ONCE,
        }
        limited = _keys(tenants, 1, limits) if ground.with_limited_keys else []
        hot = _keys(_tenants(f"{ground.name}-hot", 1), 1, {})[0]
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
    return {"keys": keys, "limited": limited, "hot": hot}


def _tenants(prefix: str, count: int) -> list[Tenant]:
    """With credit. The first as people make them, the others in bulk: the same rows, no trail."""
    first = create_tenant(f"{prefix}-0", f"{prefix}-0", actor=ACTOR)
    top_up(first, CREDIT_NANOS, payment_id=f"first-{prefix}-0", actor=ACTOR)
    slugs = [f"{prefix}-{number}" for number in range(1, count)]
    others = Tenant.objects.bulk_create(Tenant(name=slug, slug=slug) for slug in slugs)
    wallets = Account.objects.bulk_create(
        Account(
            tenant=tenant,
            kind=AccountKind.WALLET,
            currency=tenant.currency,
            posted_nanos=CREDIT_NANOS,
        )
        for tenant in others
    )
    payments = Payment.objects.bulk_create(
        Payment(
            external_id=f"first-{tenant.slug}",
            tenant=tenant,
            link=new_exchange_id(),
            amount_nanos=CREDIT_NANOS,
            currency=tenant.currency,
        )
        for tenant in others
    )
    funding = Account.objects.get(tenant=None, kind=AccountKind.FUNDING, currency=first.currency)
    Transfer.objects.bulk_create(
        Transfer(
            link=payment.link,
            tenant_id=payment.tenant_id,
            debit_account_id=funding.pk,
            credit_account_id=wallet.pk,
            amount_nanos=CREDIT_NANOS,
            phase=Phase.SINGLE,
            code=TransferCode.TOP_UP,
            created_at=payment.created_at,
        )
        for payment, wallet in zip(payments, wallets, strict=True)
    )
    return [first, *others]


def _keys(tenants: list[Tenant], per_tenant: int, limits: dict[str, int]) -> list[str]:
    """In bulk: keys.services.create_key, with its trail, is for people."""
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


def main(arguments: list[str]) -> None:
    specification, output = arguments
    write_private(Path(output), json.dumps(seed(Ground(**json.loads(specification)))))


if __name__ == "__main__":
    main(sys.argv[1:])
