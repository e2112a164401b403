"""From an answer to its settlement, its estimate job, and its transcript.

What an exchange costs is decided in `_plan`, by one rule for each way that an answer can end.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from billing.errors import LedgerUnavailable
from billing.ids import completion_id
from billing.ledger import Facts, Hold, Settlement
from billing.messages import CUT_SHORT, status_message
from billing.money import text_from_nanos
from billing.rating import cost_nanos
from billing.usage import Usage, UsageReading, read_usage
from billing.writer import GroupCommit, Item
from gateway.relay.accepted import Accepted
from gateway.relay.attempt import Attempt
from gateway.relay.capture import Capture
from gateway.relay.cover import Cover
from gateway.relay.headers import Headers
from gateway.relay.refusals import why_of
from gateway.relay.transcript import Sent, spoken
from gateway.runtime.process import STATEMENT_TIMEOUT_MS, Runtime
from gateway.tasks import estimate_exchange, tell

logger = logging.getLogger(__name__)

SETTLE_WAIT_S = 0.25  # how long an answer's end waits for its settlement
RETRY_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
MILLISECONDS = 1_000
OUR_ACCOUNT = frozenset({401, 402, 403})  # a vendor's word on our credential is for staff


class Settling:
    def __init__(self, runtime: Runtime, accepted: Accepted, cover: Cover) -> None:
        self._runtime = runtime
        self._accepted = accepted
        self._cover = cover
        self._loop = asyncio.get_running_loop()
        self._attempts: list[Attempt] = []
        self._status_code = 0
        self._error_code: str | None = None
        self._is_client_gone = False
        self._head_sent_s = 0.0
        self._cost_nanos: int | None = None
        self.completion_id = completion_id(accepted.arrival.exchange_id)
        self.error_body: bytes | None = None
        self.sent_headers: Headers = []
        self.sent_bytes = 0

    def begin(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)

    def head_sent(self, now_s: float) -> None:
        self._head_sent_s = now_s

    def set_end(self, *, status_code: int, error_code: str | None, is_client_gone: bool) -> None:
        self._status_code = status_code
        self._error_code = error_code
        self._is_client_gone = is_client_gone

    async def settle(self) -> None:
        """Make the end durable, waiting `SETTLE_WAIT_S` at most; the rest goes on behind."""
        reading, outcome = self._plan()
        is_counted = reading is None or reading.is_complete
        if is_counted and not self._cover.is_cut_short:
            settlement = self._settlement(reading, outcome)
            self._cost_nanos = settlement.cost_nanos
            await self._submit(self._runtime.settlements, settlement.item())
        else:
            await self._submit(self._runtime.estimates, self._estimate_item(outcome))
            self._runtime.background.start(
                asyncio.to_thread(_send_task, str(self._accepted.arrival.exchange_id)), "estimate"
            )

    async def let_go(self) -> None:
        """Resolve at zero an exchange of which nothing can be read any more."""
        accepted = self._accepted
        settlement = _at_zero(
            accepted.arrival.exchange_id,
            accepted.principal.tenant_id,
            accepted.currency,
            Facts(status_code=self._status_code, error_code=self._error_code),
        )
        await self._submit(self._runtime.settlements, settlement.item())

    async def checkpoint(self) -> None:
        """Keep prompt and answer so far: what the sweeper needs if this process dies."""
        item = self._job_item(is_ready=False, outcome="gateway_died")
        try:
            await self._runtime.estimates.submit(item)
        except (LedgerUnavailable, psycopg.Error) as error:
            logger.warning("A check-point is late: %s", type(error).__name__)

    def record(self, client_headers: Headers) -> None:
        """Hand what was said to the scribe, which masks and stores it."""
        accepted, attempts = self._accepted, self._attempts
        if accepted.principal.transcript_policy == "nothing":
            return
        sent = Sent(
            status=self._status_code,
            headers=self.sent_headers or client_headers,
            at_s=self._head_sent_s,
            size_bytes=self.sent_bytes,
            usage=self.usage_with_cost(),
            error_body=self.error_body,
        )
        self._runtime.recorder.put(spoken(accepted, attempts, sent))

    def leave(self) -> None:
        self._runtime.limiter.give_back(self._accepted.grant)

    def cost_headers(self) -> Headers:
        if self._cost_nanos is None:
            return []
        return [(b"x-farthing-cost", text_from_nanos(self._cost_nanos).encode())]

    def usage_with_cost(self) -> dict[str, Any] | None:
        """The vendor's usage with what it costs, for a stream whose client asked for usage."""
        usage = self._attempts[-1].relay.raw_usage if self._attempts else None
        if usage is None or self._cost_nanos is None or not self._accepted.request.stream:
            return None
        cost = text_from_nanos(self._cost_nanos)
        return {**usage, "cost": cost, "cost_currency": self._accepted.currency}

    def processing_header(self) -> tuple[bytes, bytes]:
        elapsed_s = self._loop.time() - self._accepted.arrival.started_s
        return b"openai-processing-ms", str(round(elapsed_s * MILLISECONDS)).encode()

    def _plan(self) -> tuple[UsageReading | None, str]:
        """What to charge by (None: nothing) and how the exchange ended, in a word."""
        attempt = self._attempts[-1]
        relay = attempt.relay
        if relay.failure is not None:
            return None, "failed"
        reading = read_usage(
            relay.raw_usage,
            has_output=relay.has_output,
            cached_beside=attempt.route.vendor.cached_beside,
        )
        outcome = "answered" if relay.complete else "partial"
        if self._is_client_gone and not relay.complete:
            outcome = "client_gone"
        if not reading.is_complete and not relay.has_output:
            return None, outcome  # nothing was delivered, and the vendor claims nothing
        return reading, outcome

    def _settlement(self, reading: UsageReading | None, outcome: str) -> Settlement:
        accepted = self._accepted
        usage = Usage() if reading is None else reading.usage
        is_charged = reading is not None and accepted.price is not None
        return Settlement(
            exchange_id=accepted.arrival.exchange_id,
            tenant_id=accepted.principal.tenant_id,
            currency=accepted.currency,
            cost_nanos=cost_nanos(usage, accepted.price) if is_charged and accepted.price else 0,
            usage=usage,
            usage_source="none" if reading is None else "vendor",
            outcome=outcome,
            settled_at=datetime.now(UTC),
            facts=self._facts(),
            flags=() if reading is None else reading.flags,
            vendor_usage=None if reading is None else reading.raw,
        )

    def _facts(self) -> Facts:
        arrival, attempt = self._accepted.arrival, self._attempts[-1]
        now_s = self._loop.time()
        first_byte_s = attempt.first_byte_s
        return Facts(
            ended_at=datetime.now(UTC),
            first_byte_ms=_ms(first_byte_s - arrival.started_s) if first_byte_s else None,
            duration_ms=_ms(now_s - arrival.started_s),
            status_code=self._status_code,
            error_code=self._error_code,
            finish_reason=attempt.relay.finish_reason,
            attempts=[
                attempt.summary(number, arrival.started_s)
                for number, attempt in enumerate(self._attempts, 1)
            ],
            message=self._message(),
        )

    def _message(self) -> dict[str, Any] | None:
        failure = self._attempts[-1].relay.failure
        if failure is None:
            return self._cut_short() if self._cover.is_cut_short else None
        is_ours = failure.vendor_status in OUR_ACCOUNT
        return {
            "vendor_status": None if is_ours else failure.vendor_status,
            "vendor_message": None,
            "user_status": failure.error.status,
            "user_message": failure.error.message,
        }

    def _cut_short(self) -> dict[str, Any]:
        limit = self._cover.limit
        why = {} if limit is None else {"limit": why_of(limit).kept()}
        return {**status_message(CUT_SHORT, 200), **why}

    def _estimate_item(self, outcome: str) -> Item:
        return {
            **self._job_item(is_ready=True, outcome=outcome),
            **self._facts().item(),
        }

    def _job_item(self, *, is_ready: bool, outcome: str) -> Item:
        accepted, attempt = self._accepted, self._attempts[-1]
        now = datetime.now(UTC)
        request = Capture()
        request.add(attempt.body)
        return {
            "id": accepted.arrival.exchange_id,
            "tenant_id": accepted.principal.tenant_id,
            "is_ready": is_ready,
            "vendor_model": attempt.route.vendor_model,
            "family": attempt.route.family or accepted.model.family,
            "job": {
                "vendor": attempt.route.vendor.name,
                "head": attempt.kept_head(),
                "outcome": outcome,
                "cached_beside": attempt.route.vendor.cached_beside,
                "output_bound": self._cover.output_bound,
                "is_cut_short": self._cover.is_cut_short,
                "choices": accepted.request.n,
                "size_bytes": attempt.capture.size_bytes,
                "kept_bytes": attempt.capture.kept_bytes,
            },
            "request": base64.b64encode(request.frames()).decode(),
            "answer": base64.b64encode(attempt.capture.frames()).decode(),
            "now": now,
            "due_at": now,
        }

    async def _submit(self, writer: GroupCommit, item: Item) -> None:
        """Wait a moment for the writer's answer; failing that, insist in the background."""
        try:
            answer = writer.submit(item)
        except (LedgerUnavailable, TypeError):
            await self._insist(writer, item, None)
            return
        done, _ = await asyncio.wait({answer}, timeout=SETTLE_WAIT_S)
        if not done or answer.exception() is not None:
            await self._insist(writer, item, answer)

    async def _insist(self, writer: GroupCommit, item: Item, answer: Awaitable[Any] | None) -> None:
        """On disk first: what a client has read to the end is settled, or will be."""
        await asyncio.to_thread(self._runtime.spool.keep, writer.name, item)
        work = insist(self._runtime, writer, item, answer)
        self._runtime.background.start(work, "settlement")


async def insist(
    runtime: Runtime, writer: GroupCommit, item: Item, answer: Awaitable[Any] | None = None
) -> str:
    """Send until it is written; from the first failure on it is kept on disk until then.

    What the database refuses to store is left out of a second try. Answers the statement's word.
    """
    attempt = 0
    while True:
        try:
            row = await (answer if answer is not None else writer.submit(item))
        except (LedgerUnavailable, psycopg.errors.OperationalError) as error:
            logger.warning("Settling %s waits: %s", item["id"], type(error).__name__)
        except (psycopg.Error, TypeError):
            logger.exception("Exchange %s cannot be stored as it is", item["id"])
            item = {**item, **dict.fromkeys(OPTIONAL_FIELDS & item.keys())}
        except asyncio.CancelledError:
            runtime.spool.keep(writer.name, item)
            raise
        else:
            runtime.spool.drop(writer.name, item)
            if row[1] not in WRITTEN:
                logger.warning("Exchange %s: %s", item["id"], row[1])
            return str(row[1])
        if attempt == 0:
            runtime.spool.keep(writer.name, item)
        answer = None
        await asyncio.sleep(RETRY_PAUSES_S[min(attempt, len(RETRY_PAUSES_S) - 1)])
        attempt += 1


async def release_unanswered(runtime: Runtime, hold: Hold) -> None:
    """Resolve at zero a hold of which nobody knows whether it was written.

    PostgreSQL may be writing it still: it is asked once more when that is over for certain.
    """
    facts = Facts(status_code=503, error_code="service_unavailable")
    item = _at_zero(hold.exchange_id, hold.tenant_id, hold.currency, facts).item()
    if await insist(runtime, runtime.settlements, item) == "unknown":
        await asyncio.sleep(STATEMENT_TIMEOUT_MS / MILLISECONDS)
        await insist(runtime, runtime.settlements, item)


def _at_zero(exchange_id: UUID, tenant_id: int, currency: str, facts: Facts) -> Settlement:
    return Settlement(
        exchange_id=exchange_id,
        tenant_id=tenant_id,
        currency=currency,
        cost_nanos=0,
        usage=Usage(),
        usage_source="none",
        outcome="failed",
        settled_at=datetime.now(UTC),
        facts=facts,
    )


def resume(runtime: Runtime) -> None:
    """Send what an earlier process could not: called once, when a gateway starts."""
    for writer in (runtime.settlements, runtime.estimates):
        for item in runtime.spool.found(writer.name):
            runtime.background.start(insist(runtime, writer, item), "spooled settlement")


WRITTEN = frozenset({"settled", "kept", "late"})
OPTIONAL_FIELDS = frozenset(
    {"attempts", "message", "vendor_usage", "flags", "finish_reason", "error_code"}
)


def _send_task(exchange_id: str) -> None:
    tell(estimate_exchange, exchange_id)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * MILLISECONDS))
