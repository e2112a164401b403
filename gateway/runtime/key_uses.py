"""When keys were last used: gathered in memory, written every few seconds, apart from the money."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

WRITE_EVERY_S = 5.0

_UPSERT = """
INSERT INTO keys_keyuse (key_id, last_used_at)
SELECT u.key_id, u.last_used_at
FROM unnest(%s::bigint[], %s::timestamptz[]) AS u(key_id, last_used_at)
WHERE EXISTS (SELECT 1 FROM keys_apikey k WHERE k.id = u.key_id)
ORDER BY u.key_id
ON CONFLICT (key_id) DO UPDATE
SET last_used_at = greatest(keys_keyuse.last_used_at, excluded.last_used_at)
"""


class KeyUses:
    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._latest: dict[int, datetime] = {}

    def note(self, key_id: int) -> None:
        self._latest[key_id] = datetime.now(UTC)

    async def write(self) -> None:
        """Write what was noted. If PostgreSQL is away it is kept for the next time."""
        noted, self._latest = self._latest, {}
        if not noted:
            return
        try:
            async with self._pool.connection() as connection:
                await connection.execute(_UPSERT, (list(noted), list(noted.values())))
        except BaseException:
            self._keep(noted)
            raise

    def _keep(self, noted: Mapping[int, datetime]) -> None:
        for key_id, moment in noted.items():
            self._latest.setdefault(key_id, moment)
