"""Requests a minute and at once, per key: one Redis round trip, none for keys without limits.

The window and the leases are read by Redis' own clock, so hosts need not agree on the time. A
slot is a lease that its process renews: one that dies gives its slots back by itself.

Each process also counts for itself what it has let through. That count alone decides, by the
process's share of the limit, while Redis is away; and because it goes on all the time, neither the
loss of Redis nor its return with empty hands lets a key start anew.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass, field

import redis.asyncio as redis

from keys.principals import Principal

logger = logging.getLogger(__name__)

WINDOW_MS = 60_000
LEASE_MS = 30_000
RENEW_EVERY_S = 10.0
REDIS_TIMEOUT_S = 0.25
REDIS_PAUSE_S = 1.0  # after a failure Redis is left alone this long

# Answers {allowed, requests left, ms until the window moves, which limit refused: see LIMIT_NAMES}.
TAKE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local per_minute, at_once = tonumber(ARGV[1]), tonumber(ARGV[2])
local left, reset = -1, 0
if per_minute > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - 60000)
  local used = redis.call('ZCARD', KEYS[1])
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or now
  reset = oldest + 60000 - now
  left = per_minute - used
  if left <= 0 then return {0, 0, reset, 1} end
end
if at_once > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], 0, now)
  if redis.call('ZCARD', KEYS[2]) >= at_once then return {0, left, 1000, 2} end
  redis.call('ZADD', KEYS[2], now + tonumber(ARGV[4]), ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
if per_minute > 0 then
  redis.call('ZADD', KEYS[1], now, ARGV[3])
  redis.call('PEXPIRE', KEYS[1], 60000)
  left = left - 1
end
return {1, left, reset, 0}
"""

RENEW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZADD', KEYS[1], 'XX', now + tonumber(ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer for one request; `limit` names what was exceeded where it is refused."""

    is_allowed: bool
    limit: str = ""
    requests_limit: int | None = None
    requests_left: int = 0
    reset_ms: int = 0
    slot: str | None = None  # to be given back

    @property
    def retry_after_s(self) -> int:
        return max(1, -(-self.reset_ms // 1_000))


NO_LIMITS = Grant(is_allowed=True)
LIMIT_NAMES = {1: "requests per minute", 2: "concurrent requests"}


@dataclass(slots=True)
class _Local:
    """What this process let through for one key: starts of the last minute, and what still runs."""

    starts_s: deque[float] = field(default_factory=deque)
    slots: set[str] = field(default_factory=set)

    def forget_before(self, moment_s: float) -> None:
        while self.starts_s and self.starts_s[0] <= moment_s:
            self.starts_s.popleft()


class Limiter:
    def __init__(self, url: str, processes: int) -> None:
        self._redis = redis.Redis.from_url(
            url,
            socket_timeout=REDIS_TIMEOUT_S,
            socket_connect_timeout=REDIS_TIMEOUT_S,
            retry_on_timeout=False,
            protocol=2,
        )
        self._take = self._redis.register_script(TAKE)
        self._renew = self._redis.register_script(RENEW)
        self._processes = max(1, processes)
        self._local: dict[int, _Local] = {}
        self._leases: dict[str, int] = {}
        self._away_until_s = 0.0
        self.is_redis_away = False

    async def take(self, principal: Principal, request_id: str) -> Grant:
        if principal.requests_per_minute is None and principal.concurrent_requests is None:
            return NO_LIMITS
        is_shared = time.monotonic() >= self._away_until_s
        grant = self._take_local(principal, request_id, 1 if is_shared else self._processes)
        if not is_shared or not grant.is_allowed:
            return grant
        try:
            grant = await self._take_shared(principal, request_id)
        except (redis.RedisError, OSError) as error:
            self._redis_failed(error)
            self._put_back(principal, request_id)
            return self._take_local(principal, request_id, self._processes)
        except BaseException:
            self._put_back(principal, request_id)
            raise
        if not grant.is_allowed:
            self._put_back(principal, request_id)
        return grant

    async def give_back(self, principal: Principal, grant: Grant) -> None:
        if grant.slot is None:
            return
        self._leases.pop(grant.slot, None)
        local = self._local.get(principal.key_id)
        if local is not None:
            local.slots.discard(grant.slot)
        if time.monotonic() < self._away_until_s:
            return  # its lease ends by itself
        try:
            await self._redis.zrem(_slots_name(principal.key_id), grant.slot)
        except (redis.RedisError, OSError) as error:
            self._redis_failed(error)

    async def renew(self) -> None:
        """Keep the leases of running requests: called every `RENEW_EVERY_S`."""
        self._forget_idle()
        for slot, key_id in list(self._leases.items()):
            try:
                await self._renew(keys=[_slots_name(key_id)], args=[slot, LEASE_MS])
            except (redis.RedisError, OSError) as error:
                self._redis_failed(error)
                return

    async def close(self) -> None:
        await self._redis.aclose()

    async def _take_shared(self, principal: Principal, request_id: str) -> Grant:
        allowed, left, reset_ms, exceeded = await self._take(
            keys=[_minute_name(principal.key_id), _slots_name(principal.key_id)],
            args=[
                principal.requests_per_minute or 0,
                principal.concurrent_requests or 0,
                request_id,
                LEASE_MS,
            ],
        )
        if self.is_redis_away:
            logger.warning("Redis answers again; limits are shared")
        self.is_redis_away = False
        return self._grant(
            principal, request_id, bool(allowed), int(left), int(float(reset_ms)), int(exceeded)
        )

    def _take_local(self, principal: Principal, request_id: str, processes: int) -> Grant:
        """Let through what this process alone may: a share of each limit, one request at least."""
        local = self._local.setdefault(principal.key_id, _Local())
        now_s = time.monotonic()
        local.forget_before(now_s - WINDOW_MS / 1_000)
        per_minute, at_once = principal.requests_per_minute, principal.concurrent_requests
        left, reset_ms = -1, 0
        if per_minute is not None:
            left = max(1, per_minute // processes) - len(local.starts_s)
            oldest_s = local.starts_s[0] if local.starts_s else now_s
            reset_ms = int((oldest_s - now_s) * 1_000) + WINDOW_MS
            if left <= 0:
                return self._grant(principal, request_id, False, 0, reset_ms, 1)
            local.starts_s.append(now_s)
        if at_once is not None:
            if len(local.slots) >= max(1, at_once // processes):
                if per_minute is not None:
                    local.starts_s.pop()
                return self._grant(principal, request_id, False, left, 1_000, 2)
            local.slots.add(request_id)
        return self._grant(principal, request_id, True, left - 1, reset_ms, 0)

    def _put_back(self, principal: Principal, request_id: str) -> None:
        """Uncount what Redis has not let through, or has not answered."""
        self._leases.pop(request_id, None)
        local = self._local.get(principal.key_id, _Local())
        local.slots.discard(request_id)
        if local.starts_s:
            local.starts_s.pop()

    def _forget_idle(self) -> None:
        """Keys that have nothing running and nothing in the window take no memory."""
        before_s = time.monotonic() - WINDOW_MS / 1_000
        for key_id, local in list(self._local.items()):
            local.forget_before(before_s)
            if not local.starts_s and not local.slots:
                del self._local[key_id]

    def _grant(
        self,
        principal: Principal,
        request_id: str,
        is_allowed: bool,
        left: int,
        reset_ms: int,
        exceeded: int,
    ) -> Grant:
        has_slot = is_allowed and principal.concurrent_requests is not None
        if has_slot:
            self._leases[request_id] = principal.key_id
        return Grant(
            is_allowed=is_allowed,
            limit=LIMIT_NAMES.get(exceeded, ""),
            requests_limit=principal.requests_per_minute,
            requests_left=max(left, 0),
            reset_ms=reset_ms,
            slot=request_id if has_slot else None,
        )

    def _redis_failed(self, error: Exception) -> None:
        if not self.is_redis_away:
            logger.warning("Redis does not answer (%s); limits are local", type(error).__name__)
        self.is_redis_away = True
        self._away_until_s = time.monotonic() + REDIS_PAUSE_S


def _minute_name(key_id: int) -> str:
    return f"farthing:minute:{{{key_id}}}"


def _slots_name(key_id: int) -> str:
    """The braces keep a key's two sets in one slot of a Redis Cluster."""
    return f"farthing:slots:{{{key_id}}}"


def limit_headers(grant: Grant) -> list[tuple[str, str]]:
    """OpenAI's names. A key without a limit has none to tell."""
    if grant.requests_limit is None:
        return []
    return [
        ("x-ratelimit-limit-requests", str(grant.requests_limit)),
        ("x-ratelimit-remaining-requests", str(grant.requests_left)),
        ("x-ratelimit-reset-requests", f"{max(grant.reset_ms, 0) / 1_000:g}s"),
    ]
