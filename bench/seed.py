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


@dataclass(frozen=True, slots=True)
class Ground:
    """What a database holds at first."""

    name: str
    vendor_url: str
    tenants: int = 10
    keys_per_tenant: int = 1
    extra_models: int = 0
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


def main(arguments: list[str]) -> None:
    specification, output = arguments
    django.setup()
    write_private(Path(output), json.dumps(seed(Ground(**json.loads(specification)))))


if __name__ == "__main__":
    main(sys.argv[1:])
