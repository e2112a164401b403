"""Idempotency-Key on the relay: one key, one vendor call, one charge, whatever is repeated.

The key is claimed in PostgreSQL before anything is held. A repeat gets the stored answer while
the first one is kept, 409 while it runs, 422 with another body. What certainly cost nothing (a
refusal, a vendor that was not reached) gives the key back, so that a retry is a real one.
"""

import hashlib
import logging
import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
import psycopg
from psycopg.types.json import Jsonb

from gateway import errors
from gateway.errors import ApiError
from gateway.relay.capture import Capture, unpack
from gateway.relay.headers import Headers

logger = logging.getLogger(__name__)

HEADER = b"idempotency-key"
KEPT_HOURS = 24
ABANDONED_AFTER_S = 30  # settled, or claimed and never held, that long ago: its gateway has died
ANSWER_BYTES_MAX = 16 * 1024 * 1024
FORGET_ROWS = 1_000

_SHAPE = re.compile(r"[\x21-\x7e]{1,255}")

_CLAIM = """
INSERT INTO gateway_idempotentrequest AS r
    (tenant_id, key, body_sha256, exchange_id, created_at)
VALUES (%(tenant_id)s, %(key)s, %(body)s, %(exchange_id)s, now())
ON CONFLICT (tenant_id, key) DO UPDATE
SET body_sha256 = excluded.body_sha256, exchange_id = excluded.exchange_id,
    created_at = excluded.created_at, finished_at = NULL, status_code = NULL, headers = NULL,
    answer = NULL
WHERE r.created_at < now() - make_interval(hours => %(hours)s)
   OR (r.finished_at IS NULL AND r.body_sha256 = excluded.body_sha256
       AND r.created_at < now() - make_interval(secs => %(abandoned)s) AND NOT EXISTS (
        SELECT 1 FROM billing_exchange e
        WHERE e.id = r.exchange_id AND e.tenant_id = r.tenant_id
          AND (e.state <> 'settled'
               OR e.settled_at >= now() - make_interval(secs => %(abandoned)s))))
RETURNING exchange_id
"""
_LOOK = """
SELECT body_sha256, finished_at IS NOT NULL, status_code, headers, answer
FROM gateway_idempotentrequest WHERE tenant_id = %s AND key = %s
"""
_KEEP = """
UPDATE gateway_idempotentrequest
SET finished_at = now(), status_code = %s, headers = %s, answer = %s
WHERE tenant_id = %s AND key = %s AND exchange_id = %s
"""
_RELEASE = """
DELETE FROM gateway_idempotentrequest
WHERE tenant_id = %s AND key = %s AND exchange_id = %s AND finished_at IS NULL
"""
FORGET = """
DELETE FROM gateway_idempotentrequest WHERE ctid IN (
    SELECT ctid FROM gateway_idempotentrequest
    WHERE created_at < now() - make_interval(hours => %s) LIMIT %s)
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to be the one request of its key."""

    tenant_id: int
    key: str
    exchange_id: UUID


@dataclass(frozen=True, slots=True)
class Replay:
    """A stored answer, as it went out the first time."""

    status: int
    headers: Headers
    body: bytes


class Idempotency:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def claim(
        self, tenant_id: int, key: str, payload: dict[str, Any], exchange_id: UUID
    ) -> Claim | Replay:
        """Raises ApiError 400, 409 or 422, and psycopg errors without PostgreSQL.

        Two bodies are the same if their values are: the order of fields does not matter.
        """
        if not _SHAPE.fullmatch(key):
            raise errors.invalid_request(
                "Idempotency-Key must be 1 to 255 visible ASCII characters.",
                param="idempotency-key",
            )
        canonical = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
        digest = hashlib.sha256(canonical).digest()
        values = {
            "tenant_id": tenant_id,
            "key": key,
            "body": digest,
            "exchange_id": exchange_id,
            "hours": KEPT_HOURS,
            "abandoned": ABANDONED_AFTER_S,
        }
        async with self._pool.connection() as connection:
            claimed = await (await connection.execute(_CLAIM, values)).fetchone()
            if claimed is not None:
                return Claim(tenant_id, key, exchange_id)
            row = await (await connection.execute(_LOOK, (tenant_id, key))).fetchone()
        return _replay(row, digest)

    async def keep(self, claim: Claim, status: int, headers: Headers, answer: Capture) -> None:
        """Store what a repeat will get. Too large an answer is not kept: its key is given back."""
        if answer.is_cut:
            await self.release(claim)
            return
        shown = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers]
        await self._write(
            _KEEP, (status, Jsonb(shown, orjson.dumps), answer.frames(), *_key(claim))
        )

    async def release(self, claim: Claim) -> None:
        await self._write(_RELEASE, _key(claim))

    async def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        try:
            async with self._pool.connection() as connection:
                await connection.execute(statement, values)
        except (psycopg.Error, OSError) as error:
            # A repeat gets 409 until the claim counts as abandoned; nothing is charged twice.
            logger.warning("An idempotent answer is not kept: %s", type(error).__name__)


def may_be_repeated(error: ApiError) -> bool:
    """True where nothing was or will be charged, so that a retry should be a real one."""
    return error.should_retry or error.status in {401, 402, 403, 404, 413}


def _replay(row: tuple[Any, ...] | None, digest: bytes) -> Replay:
    if row is None:
        raise errors.idempotency_in_progress()  # given back a moment ago: the retry claims it
    body_sha256, is_finished, status, headers, answer = row
    if bytes(body_sha256) != digest:
        raise errors.idempotency_key_reused()
    if not is_finished:
        raise errors.idempotency_in_progress()
    shown = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return Replay(status, [*shown, (b"idempotency-replayed", b"true")], unpack(bytes(answer)))


def _key(claim: Claim) -> tuple[int, str, UUID]:
    return claim.tenant_id, claim.key, claim.exchange_id
