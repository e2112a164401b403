"""Requests a minute and at once, per key and per tenant: one Redis round trip, none without limits.

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

from gateway.runtime.redis_batches import FAILURES, RedisBatches, Script
from keys.principals import Principal

logger = logging.getLogger(__name__)

WINDOW_MS = 60_000
LEASE_MS = 30_000
RENEW_EVERY_S = 10.0
REDIS_PAUSE_S = 1.0  # after a failure Redis is left alone this long
SLOT_RETRY_MS = 1_000

# Room is needed in every pair of KEYS, a minute and slots; only then is it taken in each.
# Answers {which pair refused, which of its limits: see LIMIT_NAMES, requests left, ms until its
# window moves}, or {0, 0} and of each pair the requests left and the ms.
TAKE = Script("""
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local id, lease = ARGV[1], tonumber(ARGV[2])
local answer = {0, 0}
for pair = 1, #KEYS / 2 do
  local minute, slots = KEYS[2 * pair - 1], KEYS[2 * pair]
  local per_minute, at_once = tonumber(ARGV[2 * pair + 1]), tonumber(ARGV[2 * pair + 2])
  local left, reset = 0, 0
  if per_minute > 0 then
    redis.call('ZREMRANGEBYSCORE', minute, 0, now - 60000)
    left = per_minute - redis.call('ZCARD', minute)
    local oldest = redis.call('ZRANGE', minute, 0, 0, 'WITHSCORES')[2] or now
    reset = oldest + 60000 - now
    if left <= 0 then return {pair, 1, 0, reset} end
  end
  if at_once > 0 then
    redis.call('ZREMRANGEBYSCORE', slots, 0, now)
    if redis.call('ZCARD', slots) >= at_once then return {pair, 2, left, reset} end
  end
  answer[2 * pair + 1], answer[2 * pair + 2] = left - 1, reset
end
for pair = 1, #KEYS / 2 do
  if tonumber(ARGV[2 * pair + 1]) > 0 then
    redis.call('ZADD', KEYS[2 * pair - 1], now, id)
    redis.call('PEXPIRE', KEYS[2 * pair - 1], 60000)
  end
  if tonumber(ARGV[2 * pair + 2]) > 0 then
    redis.call('ZADD', KEYS[2 * pair], now + lease, id)
    redis.call('PEXPIRE', KEYS[2 * pair], lease)
  end
end
return answer
""")

RENEW = Script("""
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZADD', KEYS[1], 'XX', now + tonumber(ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
""")


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is let through under one name; None is no limit. `scope` is key or tenant."""

    name: str
    scope: str
    per_minute: int | None
    at_once: int | None


NONE = (None, None)


def allowances(
    principal: Principal, plan_per_minute: int | None, plan_at_once: int | None
) -> tuple[Allowance, ...]:
    """The key's own limits, and those that its tenant's plan sets for all its keys together.

    Test and live never mix: test keys share the plan's limits among themselves.
    """
    of_key = (principal.requests_per_minute, principal.concurrent_requests)
    of_plan = (plan_per_minute, plan_at_once)
    if of_key == of_plan == NONE:
        return ()
    tenant = f"{{{principal.tenant_id}}}"  # braces keep all names in one slot of a Redis Cluster
    found = (
        (f"{tenant}:key:{principal.key_id}", "key", of_key),
        (f"{tenant}:{principal.kind}", "tenant", of_plan),
    )
    return tuple(Allowance(name, scope, *limits) for name, scope, limits in found if limits != NONE)


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer for one request.

    Refused, `limit` names what was exceeded and `refused_by` whose it is. `requests_…` speak of
    the tightest limit a minute. Slots of `taken` are to be given back.
    """

    is_allowed: bool
    limit: str = ""
    refused_by: Allowance | None = None
    requests_limit: int | None = None
    requests_left: int = 0
    reset_ms: int = 0
    slot: str | None = None
    taken: tuple[Allowance, ...] = ()

    @property
    def retry_after_s(self) -> int:
        return max(1, -(-self.retry_after_ms // 1_000))

    @property
    def retry_after_ms(self) -> int:
        """Nobody knows when a running request ends: soon."""
        return SLOT_RETRY_MS if self.limit == AT_ONCE else self.reset_ms

    @property
    def limit_size(self) -> int:
        by = self.refused_by
        return 0 if by is None else (by.at_once if self.limit == AT_ONCE else by.per_minute) or 0


NO_LIMITS = Grant(is_allowed=True)
PER_MINUTE = "requests per minute"
AT_ONCE = "concurrent requests"
LIMIT_NAMES = {1: PER_MINUTE, 2: AT_ONCE}
Room = tuple[int, int]
"""Requests left in the minute, and the ms until its window moves."""


@dataclass(slots=True)
class _Local:
    """What this process let through of one name: starts of the last minute, and what still runs."""

    starts_s: deque[float] = field(default_factory=deque)
    slots: set[str] = field(default_factory=set)

    def forget_before(self, moment_s: float) -> None:
        while self.starts_s and self.starts_s[0] <= moment_s:
            self.starts_s.popleft()


class Limiter:
    def __init__(self, url: str, processes: int) -> None:
        self._redis = RedisBatches(url)
        self._processes = max(1, processes)
        self._local: dict[str, _Local] = {}
        self._leases: dict[tuple[str, str], None] = {}
        self._away_until_s = 0.0
        self.is_redis_away = False

    async def take(self, wanted: tuple[Allowance, ...], request_id: str) -> Grant:
        if not wanted:
            return NO_LIMITS
        is_shared = time.monotonic() >= self._away_until_s
        grant = self._take_local(wanted, request_id, 1 if is_shared else self._processes)
        if not is_shared or not grant.is_allowed:
            return grant
        try:
            grant = await self._take_shared(wanted, request_id)
        except FAILURES as error:
            self._redis_failed(error)
            self._put_back(wanted, request_id)
            return self._take_local(wanted, request_id, self._processes)
        except BaseException:
            self._put_back(wanted, request_id)
            raise
        if not grant.is_allowed:
            self._put_back(wanted, request_id)
        return grant

    def give_back(self, grant: Grant) -> None:
        """Free its slots, here at once. Where Redis does not hear of it, its leases end there."""
        if grant.slot is None:
            return
        for allowance in grant.taken:
            self._leases.pop((allowance.name, grant.slot), None)
            local = self._local.get(allowance.name)
            if local is not None:
                local.slots.discard(grant.slot)
        if time.monotonic() < self._away_until_s:
            return
        for allowance in grant.taken:
            self._redis.send("ZREM", _slots_name(allowance.name), grant.slot)

    async def renew(self) -> None:
        """Keep the leases of running requests: called every `RENEW_EVERY_S`."""
        self._forget_idle()
        for name, slot in list(self._leases):
            try:
                await self._redis.run(RENEW, [_slots_name(name)], [slot, LEASE_MS])
            except FAILURES as error:
                self._redis_failed(error)
                return

    async def close(self) -> None:
        await self._redis.close()

    async def _take_shared(self, wanted: tuple[Allowance, ...], request_id: str) -> Grant:
        names = [(_minute_name(one.name), _slots_name(one.name)) for one in wanted]
        sizes = [(one.per_minute or 0, one.at_once or 0) for one in wanted]
        refused, exceeded, *rooms = await self._redis.run(
            TAKE,
            [name for pair in names for name in pair],
            [request_id, LEASE_MS, *(size for pair in sizes for size in pair)],
        )
        if self.is_redis_away:
            logger.warning("Redis answers again; limits are shared")
        self.is_redis_away = False
        numbers = [int(float(number)) for number in rooms]
        if refused:
            return _refused(wanted[int(refused) - 1], int(exceeded), (numbers[0], numbers[1]))
        return self._granted(
            wanted, request_id, list(zip(numbers[::2], numbers[1::2], strict=True))
        )

    def _take_local(self, wanted: tuple[Allowance, ...], request_id: str, processes: int) -> Grant:
        """Let through what this process alone may: a share of each limit, one request at least."""
        rooms: list[Room] = []
        now_s = time.monotonic()
        for one in wanted:
            local = self._local.setdefault(one.name, _Local())
            left, reset_ms = _local_room(local, one, now_s, processes)
            if one.per_minute is not None and left <= 0:
                return _refused(one, 1, (0, reset_ms))
            if one.at_once is not None and len(local.slots) >= max(1, one.at_once // processes):
                return _refused(one, 2, (left, reset_ms))
            rooms.append((left - 1, reset_ms))
        for one in wanted:
            if one.per_minute is not None:
                self._local[one.name].starts_s.append(now_s)
            if one.at_once is not None:
                self._local[one.name].slots.add(request_id)
        return self._granted(wanted, request_id, rooms)

    def _put_back(self, wanted: tuple[Allowance, ...], request_id: str) -> None:
        """Uncount what Redis has not let through, or has not answered."""
        for one in wanted:
            self._leases.pop((one.name, request_id), None)
            local = self._local.get(one.name, _Local())
            local.slots.discard(request_id)
            if one.per_minute is not None and local.starts_s:
                local.starts_s.pop()

    def _forget_idle(self) -> None:
        """Forget what has neither started in the last minute nor still runs."""
        moment_s = time.monotonic() - WINDOW_MS / 1_000
        for name, local in list(self._local.items()):
            local.forget_before(moment_s)
            if not local.starts_s and not local.slots:
                del self._local[name]

    def _granted(self, wanted: tuple[Allowance, ...], request_id: str, rooms: list[Room]) -> Grant:
        """A grant that tells of the tightest limit a minute, and keeps leases on its slots."""
        taken = tuple(one for one in wanted if one.at_once is not None)
        self._leases.update(dict.fromkeys((one.name, request_id) for one in taken))
        minutes = [
            (left, reset_ms, one.per_minute)
            for one, (left, reset_ms) in zip(wanted, rooms, strict=True)
            if one.per_minute is not None
        ]
        left, reset_ms, limit = min(minutes, default=(0, 0, None))
        return Grant(
            is_allowed=True,
            requests_limit=limit,
            requests_left=max(left, 0),
            reset_ms=reset_ms,
            slot=request_id if taken else None,
            taken=taken,
        )

    def _redis_failed(self, error: Exception) -> None:
        if not self.is_redis_away:
            logger.warning("Redis does not answer (%s); limits are local", type(error).__name__)
        self.is_redis_away = True
        self._away_until_s = time.monotonic() + REDIS_PAUSE_S


def _local_room(local: _Local, allowance: Allowance, now_s: float, processes: int) -> Room:
    local.forget_before(now_s - WINDOW_MS / 1_000)
    if allowance.per_minute is None:
        return 0, 0
    left = max(1, allowance.per_minute // processes) - len(local.starts_s)
    oldest_s = local.starts_s[0] if local.starts_s else now_s
    return left, int((oldest_s - now_s) * 1_000) + WINDOW_MS


def _refused(by: Allowance, exceeded: int, room: Room) -> Grant:
    left, reset_ms = room
    return Grant(
        is_allowed=False,
        limit=LIMIT_NAMES[exceeded],
        refused_by=by,
        requests_limit=by.per_minute,
        requests_left=max(left, 0),
        reset_ms=reset_ms,
    )


def _minute_name(name: str) -> str:
    return f"farthing:minute:{name}"


def _slots_name(name: str) -> str:
    return f"farthing:slots:{name}"


def limit_headers(grant: Grant) -> list[tuple[str, str]]:
    """OpenAI's names. A key without a limit has none to tell."""
    if grant.requests_limit is None:
        return []
    return [
        ("x-ratelimit-limit-requests", str(grant.requests_limit)),
        ("x-ratelimit-remaining-requests", str(grant.requests_left)),
        ("x-ratelimit-reset-requests", f"{max(grant.reset_ms, 0) / 1_000:g}s"),
    ]
