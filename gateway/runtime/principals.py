"""Principals in memory: no database round trip for a key that was seen before."""

import os
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from keys import secrets
from keys.principals import PRINCIPAL_SQL, Principal, principal_from_row

PRINCIPALS_KEPT = 50_000
DIGEST_KEY_BYTES = 32
TENANT_PREFIX = "tenant:"


class PrincipalCache:
    """Forgets on NOTIFY, trusts nothing while nobody listens, and never caches an absence.

    `generation` moves with every word from PostgreSQL: what was read before it is not kept, so a
    revocation cannot be overtaken by an older read.

    A secret that has proved its principal is known again by a digest under a key of this process:
    the pepper's HMAC and the checksum are for the first time.
    """

    def __init__(self, pool: Any, is_listening: Callable[[], bool]) -> None:
        self._pool = pool
        self._is_listening = is_listening
        self._kept: OrderedDict[str, Principal] = OrderedDict()
        self._proved: dict[bytes, Principal] = {}
        self._digest_key = os.urandom(DIGEST_KEY_BYTES)
        self._generation = 0

    async def authenticate(self, text: str) -> Principal | None:
        """The principal that this key proves, or None. Raises psycopg errors without PostgreSQL."""
        digest = blake2b(text.encode(), key=self._digest_key).digest()
        principal = self._proved.get(digest)
        if (
            principal is not None
            and self._kept.get(principal.public_id) is principal
            and self._is_listening()
        ):
            return principal if principal.is_current else None
        principal = await self._prove(text)
        if principal is not None:
            if len(self._proved) >= PRINCIPALS_KEPT:
                self._proved.clear()
            self._proved[digest] = principal
        return principal

    async def _prove(self, text: str) -> Principal | None:
        public_id = secrets.public_id_of(text)
        if public_id is None:
            return None
        principal = self._kept.get(public_id) if self._is_listening() else None
        if principal is None:
            principal = await self._load(public_id)
        return principal if principal is not None and principal.proves(text) else None

    def forget(self, payload: str) -> None:
        self._generation += 1
        if not payload.startswith(TENANT_PREFIX):
            self._kept.pop(payload, None)
            return
        tenant_id = int(payload.removeprefix(TENANT_PREFIX))
        for public_id in [k for k, p in self._kept.items() if p.tenant_id == tenant_id]:
            del self._kept[public_id]

    def forget_all(self) -> None:
        self._generation += 1
        self._kept.clear()
        self._proved.clear()

    async def _load(self, public_id: str) -> Principal | None:
        generation = self._generation
        async with self._pool.connection() as connection:
            cursor = await connection.execute(PRINCIPAL_SQL, (public_id,))
            row = await cursor.fetchone()
        if row is None:
            return None
        principal = principal_from_row(row)
        if generation == self._generation and self._is_listening():
            self._kept[public_id] = principal
            if len(self._kept) > PRINCIPALS_KEPT:
                self._kept.popitem(last=False)
        return principal
