"""Who a request speaks for: a key, as the relay's hot path needs it.

A `Principal` is a frozen copy of a key and of its tenant's state. It is read from PostgreSQL by
`PRINCIPAL_SQL` and kept by a cache that forgets on NOTIFY (channel `farthing_keys`, raised by
triggers on the key and tenant tables, however the row was changed).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from keys import secrets
from keys.networks import Network, address_of, network_of

CHANNEL = "farthing_keys"

PRINCIPAL_SQL = """
SELECT k.id, k.public_id, k.secret_hash, k.kind, k.name, k.allowed_models, k.allowed_ips,
       k.requests_per_minute, k.concurrent_requests, extract(epoch FROM k.expires_at)::float8,
       k.revoked_at IS NULL AND k.paused_at IS NULL, t.id, t.state = 'active', t.currency,
       t.transcript_policy
FROM keys_apikey k JOIN keys_tenant t ON t.id = k.tenant_id
WHERE k.public_id = %s
"""


@dataclass(frozen=True, slots=True)
class Principal:
    key_id: int
    public_id: str
    secret_hash: bytes = field(repr=False)
    kind: str
    key_name: str
    allowed_models: frozenset[str] | None
    allowed_ips: tuple[Network, ...]
    requests_per_minute: int | None
    concurrent_requests: int | None
    expires_at_s: float | None
    is_usable: bool
    tenant_id: int
    tenant_is_active: bool
    currency: str
    transcript_policy: str

    @property
    def is_test(self) -> bool:
        return self.kind == "test"

    @property
    def is_current(self) -> bool:
        """The expiry is looked at here, at use, so that a cached principal expires on time."""
        return self.is_usable and (self.expires_at_s is None or time.time() < self.expires_at_s)

    def proves(self, text: str) -> bool:
        """True if `text` is this key's secret and the key may be used now."""
        return self.is_current and secrets.matches(text, self.secret_hash)

    def may_use_model(self, model: str) -> bool:
        return self.allowed_models is None or model in self.allowed_models

    def may_come_from(self, address: str) -> bool:
        if not self.allowed_ips:
            return True
        client = address_of(address)
        return client is not None and any(client in network for network in self.allowed_ips)


def principal_from_row(row: Sequence[Any]) -> Principal:
    return Principal(
        key_id=row[0],
        public_id=row[1],
        secret_hash=bytes(row[2]),
        kind=row[3],
        key_name=row[4],
        allowed_models=None if row[5] is None else frozenset(row[5]),
        allowed_ips=tuple(network_of(text) for text in row[6] or ()),
        requests_per_minute=row[7],
        concurrent_requests=row[8],
        expires_at_s=row[9],
        is_usable=row[10],
        tenant_id=row[11],
        tenant_is_active=row[12],
        currency=row[13],
        transcript_policy=row[14],
    )
