"""What an answer has produced, kept within what is held for it.

A stream may go on beyond its hold: the client set no bound, the model thinks, or the vendor does
not keep to it. So every `LOOK_EVERY_BYTES` its texts are counted, and more is held before the hold
runs out. Where the money or a limit does not carry more, the stream ends. A short answer is never
looked at.
"""

import asyncio
import logging
import sys
from datetime import UTC, datetime
from typing import Final

import psycopg

from billing.errors import LedgerUnavailable
from billing.estimation import count_text
from billing.ledger import ExtendAnswer, Extension, LimitPassed, extend_answer
from billing.rating import hold_nanos
from billing.usage import read_usage
from gateway.exchanges.streams import TEXTS
from gateway.relay.accepted import Accepted
from gateway.relay.attempt import Attempt
from gateway.relay.capture import START
from gateway.relay.json_text import decode
from gateway.runtime.process import Runtime

logger = logging.getLogger(__name__)

LOOK_EVERY_BYTES: Final = 16 * 1024
STEP_TOKENS: Final = 1_024  # the least that is asked for at first
STEP_TOKENS_MIN: Final = 64  # the least that is asked for at last
NEVER: Final = sys.maxsize
WAIT_S: Final = 1.0  # PostgreSQL away: the stream goes on, and is settled when it is back


class Meter:
    """Output tokens of one attempt: its texts as they are counted, or more if the vendor says so.

    Each byte is looked at once. What was not kept is taken to be like what was.
    """

    def __init__(self, attempt: Attempt, accepted: Accepted) -> None:
        self._attempt = attempt
        self._accepted = accepted
        self._mark = START
        self._unfinished = b""
        self._counted = 0

    def tokens(self) -> int:
        capture, relay = self._attempt.capture, self._attempt.relay
        newer, self._mark = capture.since(self._mark)
        events, end, rest = (self._unfinished + newer).rpartition(b"\n")
        self._unfinished = rest
        self._counted += self._count(events + end)
        counted = self._counted or relay.event_count
        if capture.is_cut:
            counted = counted * capture.size_bytes // capture.kept_bytes
        return max(counted, self._said_by_vendor())

    def _count(self, events: bytes) -> int:
        texts = b"".join(TEXTS.findall(events))
        if not texts:
            return 0
        route = self._attempt.route
        return count_text(
            _unescaped(texts),
            model=route.vendor_model,
            family=route.family or self._accepted.model.family,
        )

    def _said_by_vendor(self) -> int:
        """The running usage, of vendors that send it with every event: it has hidden reasoning."""
        relay = self._attempt.relay
        reading = read_usage(
            relay.raw_usage,
            has_output=relay.has_output,
            cached_beside=self._attempt.route.vendor.cached_beside,
        )
        return reading.usage.completion_tokens


class Cover:
    """The tokens that an exchange's hold covers, and what is done before they are used up.

    With `max_tokens` a vendor stops there by itself, so more is asked for only beyond it, and a
    quarter more is let through, for a count of ours that is not the vendor's. Without, it is asked
    for when three quarters are used.
    """

    def __init__(self, runtime: Runtime, accepted: Accepted) -> None:
        self._runtime = runtime
        self._accepted = accepted
        self._meter: Meter
        self._is_bounded = accepted.request.max_output_tokens is not None
        self._ask_at = self._end_at = 0
        self._cover(accepted.output_bound * accepted.request.n)
        self.is_cut_short = False
        self.limit: LimitPassed | None = None
        self.look_at_bytes = NEVER

    def begin(self, attempt: Attempt) -> None:
        price = self._accepted.price
        self._meter = Meter(attempt, self._accepted)
        self.look_at_bytes = NEVER if price is None or price.is_free else LOOK_EVERY_BYTES

    @property
    def output_bound(self) -> int:
        """The most tokens a choice that an estimate may charge."""
        accepted = self._accepted
        allowed = accepted.output_bound if self._is_bounded else accepted.model.max_output_tokens
        return max(allowed, -(-self.tokens // accepted.request.n))

    async def carries(self, size_bytes: int) -> bool:
        """Hold more if it is time to; False: nothing carries the rest, so the answer must end."""
        self.look_at_bytes = size_bytes + LOOK_EVERY_BYTES
        produced = self._meter.tokens()
        if produced < self._ask_at:
            return True
        answer = await self._extend(produced)
        if answer is None or answer.outcome == "closed":
            self._ask_at = produced + STEP_TOKENS
        elif not answer.is_extended:
            self.limit = answer.limit
            self.is_cut_short = produced >= self._end_at
            self._ask_at = produced + max((self._end_at - produced) // 2, 1)
        return not self.is_cut_short

    def _cover(self, tokens: int) -> None:
        self.tokens = tokens
        self._ask_at = tokens if self._is_bounded else tokens - tokens // 4
        self._end_at = tokens + tokens // 4 if self._is_bounded else tokens

    async def _extend(self, produced: int) -> ExtendAnswer | None:
        """Ask for less and less until it is carried; None without PostgreSQL."""
        base = max(self.tokens, produced)
        step = max(base // 2, STEP_TOKENS)
        while True:
            answer = await self._ask(base + step)
            if answer is not None and answer.is_extended:
                self._cover(base + step)
            if answer is None or answer.outcome != "refused" or step <= STEP_TOKENS_MIN:
                return answer
            step = max(step // 4, STEP_TOKENS_MIN)

    async def _ask(self, tokens: int) -> ExtendAnswer | None:
        accepted = self._accepted
        if accepted.price is None:
            return None
        extension = Extension(
            exchange_id=accepted.arrival.exchange_id,
            tenant_id=accepted.principal.tenant_id,
            currency=accepted.currency,
            hold_nanos=hold_nanos(accepted.prompt_bound, tokens, accepted.price),
            extended_at=datetime.now(UTC),
        )
        try:
            async with asyncio.timeout(WAIT_S):
                return extend_answer(await self._runtime.extensions.submit(extension.item()))
        except (TimeoutError, LedgerUnavailable, psycopg.Error) as error:
            logger.warning("A hold is not extended: %s", type(error).__name__)
            return None


def _unescaped(texts: bytes) -> str:
    try:
        return str(decode(b'"%b"' % texts))
    except ValueError:
        return texts.decode("utf-8", "replace")
