"""Exchanges that did not settle by themselves: counted by a worker, or left by a dead gateway.

PostgreSQL's state is the truth. Every function here may run twice, late, or beside itself: the
settlement is once by a unique key, and what it tells the tenant is told in its transaction.
"""

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from billing.estimation import Estimate, estimate
from billing.ledger import Facts, SettleAnswer, Settlement, settle_now
from billing.messages import CUT_SHORT, ESTIMATED, INTERRUPTED, status_message, tell
from billing.models import EstimateJob, Exchange, ExchangeState, MessageCategory
from billing.processes import LIFE_LOCK
from billing.rating import cost_nanos, version_of
from billing.usage import Usage, UsageReading, read_usage
from gateway.relay.answer import AnswerRelay
from gateway.relay.capture import unpack

logger = logging.getLogger(__name__)

SWEEP_EXCHANGES = 500
SILENT_AT_MOST_S = 15 * 60
RETRY_AFTER_S = (10, 60, 300)


def settle_by_estimate(exchange_id: UUID) -> SettleAnswer | None:
    """Count what the vendor did not, and settle. None if there is nothing (more) to do."""
    job = EstimateJob.objects.filter(exchange_id=exchange_id, is_ready=True).first()
    exchange = Exchange.objects.select_related("price", "terms").filter(id=exchange_id).first()
    if job is None or exchange is None or exchange.state == ExchangeState.SETTLED:
        return None
    replay = _Replay(job)
    counted = _count(job, replay)
    usage = replay.reading.with_estimates(
        prompt=counted.prompt_tokens, completion=counted.completion_tokens
    )
    return _settle(exchange, job, replay, usage, counted)


def sweep() -> int:
    """Settle what is due; answers how many exchanges it took up."""
    now = timezone.now()
    taken = 0
    for exchange in _abandoned():
        taken += 1
        try:
            _take_over(exchange)
        except Exception:  # the next sweep tries again; its neighbours do not wait for it
            logger.exception("Exchange %s could not be taken over", exchange.id)
    due = EstimateJob.objects.filter(is_ready=True, due_at__lte=now).order_by("due_at")
    for exchange_id in due.values_list("exchange_id", flat=True)[:SWEEP_EXCHANGES]:
        taken += 1
        try:
            settle_by_estimate(exchange_id)
        except Exception as error:
            logger.exception("Exchange %s could not be estimated", exchange_id)
            _postpone(exchange_id, error)
    return taken


class _Replay:
    """The vendor's answer, read again from what was captured of it."""

    def __init__(self, job: EstimateJob) -> None:
        self.request: dict[str, Any] = orjson.loads(unpack(bytes(job.request or b"")))
        facts = job.facts
        self.relay = AnswerRelay(
            client_streams=False,
            client_wants_usage=True,
            completion_id="",
            model="",
            vendor_model=job.vendor_model,
        )
        head = facts.get("head") or {"status": 0, "headers": []}
        headers = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"]
        ]
        self.relay.receive_head(head["status"], headers)
        self.relay.receive(unpack(bytes(job.answer or b"")))
        self.relay.receive_end()
        self.completion = self.relay.completion
        self.reading: UsageReading = read_usage(
            self.relay.raw_usage,
            has_output=self.relay.has_output,
            cached_beside=facts.get("cached_beside"),
        )


def _count(job: EstimateJob, replay: _Replay) -> Estimate:
    facts = job.facts
    counted = estimate(
        replay.request,
        replay.completion,
        model=job.vendor_model,
        family=job.family,
        finish_reason=replay.relay.finish_reason,
        max_output_tokens=facts["output_bound"],
        n=facts["choices"],
    )
    if facts["kept_bytes"] < facts["size_bytes"]:
        # Of an answer beyond the capture's bound the rest is counted like the part that was kept.
        scaled = counted.completion_tokens * facts["size_bytes"] // facts["kept_bytes"]
        bound = facts["output_bound"] * facts["choices"]
        counted = replace(counted, completion_tokens=min(scaled, bound))
    return counted


def _settle(
    exchange: Exchange, job: EstimateJob, replay: _Replay, usage: Usage, counted: Estimate
) -> SettleAnswer:
    price = version_of(exchange.price, exchange.terms) if exchange.price is not None else None
    is_whole_estimate = replay.reading.source == "missing"
    outcome = job.facts["outcome"]
    told = _told(job, is_whole_estimate=is_whole_estimate)
    settlement = Settlement(
        exchange_id=exchange.id,
        tenant_id=exchange.tenant_id,
        currency=exchange.currency,
        cost_nanos=cost_nanos(usage, price) if price is not None else 0,
        usage=usage,
        usage_source="estimate" if is_whole_estimate else "vendor",
        outcome=outcome,
        settled_at=timezone.now(),
        facts=Facts(
            finish_reason=replay.relay.finish_reason,
            message=None if told is None else status_message(told, exchange.status_code or 200),
        ),
        flags=(*replay.reading.flags, *counted.flags),
        vendor_usage=replay.reading.raw,
        estimate=_kept(counted),
    )
    return _settle_and_tell(exchange, settlement, told)


def _told(job: EstimateJob, *, is_whole_estimate: bool) -> str | None:
    if job.facts.get("is_cut_short"):
        return CUT_SHORT
    if not is_whole_estimate:
        return None
    return INTERRUPTED if job.facts["outcome"] == "gateway_died" else ESTIMATED


def _kept(counted: Estimate) -> dict[str, Any]:
    error = counted.expected_error
    return {
        "method": counted.method,
        "family": counted.family,
        "vocabulary": counted.vocabulary,
        "vocabulary_sha256": counted.vocabulary_sha256,
        "rule_version": counted.rule_version,
        "flags": list(counted.flags),
        "expected_error": None if error is None else str(error),
        "sentence": counted.sentence(),
    }


def _settle_and_tell(
    exchange: Exchange, settlement: Settlement, user_message: str | None
) -> SettleAnswer:
    with transaction.atomic():
        (answer,) = settle_now([settlement])
        if answer.is_settled_now and user_message is not None:
            is_cut_short = user_message == CUT_SHORT
            tell(
                exchange.tenant_id,
                MessageCategory.LIMIT if is_cut_short else MessageCategory.ESTIMATE,
                user_message,
                user_status=exchange.status_code or 200,
                exchange_id=exchange.id,
                nanos=answer.charge_nanos,
                currency=exchange.currency,
                is_test=exchange.is_test,
            )
    return answer


def _abandoned() -> list[Exchange]:
    """Open exchanges whose gateway stopped or was not heard of for `GATEWAY_DEAD_AFTER_S`.

    A gateway that is too busy to beat still holds its lock, and keeps its streams; for
    `SILENT_AT_MOST_S`, so that a frozen one does not keep money held for ever. A gateway that
    cannot reach PostgreSQL cannot beat either, so nothing is taken from it before PostgreSQL
    itself has been up long enough for every living gateway to have beaten again.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT e.id FROM billing_exchange e
            LEFT JOIN billing_gatewayprocess p ON p.id = e.process_id
            WHERE e.state = 'open'
              AND now() - pg_postmaster_start_time() > make_interval(secs => %(dead)s)
              AND (p.id IS NULL OR p.stopped_at IS NOT NULL
                   OR p.seen_at < now() - make_interval(secs => %(silent)s)
                   OR (p.seen_at < now() - make_interval(secs => %(dead)s) AND NOT EXISTS (
                        SELECT 1 FROM pg_locks l
                        WHERE l.locktype = 'advisory' AND l.classid = %(lock)s
                          AND l.objid = p.id::bigint::oid AND l.granted
                          AND l.database = (SELECT d.oid FROM pg_database d
                                            WHERE d.datname = current_database()))))
            ORDER BY e.id LIMIT %(most)s
            """,
            {
                "dead": settings.GATEWAY_DEAD_AFTER_S,
                "silent": SILENT_AT_MOST_S,
                "lock": LIFE_LOCK,
                "most": SWEEP_EXCHANGES,
            },
        )
        ids = [row[0] for row in cursor.fetchall()]
    return list(Exchange.objects.filter(Q(id__in=ids), state=ExchangeState.OPEN))


def _take_over(exchange: Exchange) -> None:
    """What was check-pointed is charged at estimate; without a check-point nothing is."""
    if EstimateJob.objects.filter(exchange_id=exchange.id).update(is_ready=True):
        return
    settlement = Settlement(
        exchange_id=exchange.id,
        tenant_id=exchange.tenant_id,
        currency=exchange.currency,
        cost_nanos=0,
        usage=Usage(),
        usage_source="none",
        outcome="gateway_died",
        settled_at=timezone.now(),
        facts=Facts(error_code="gateway_died", status_code=exchange.status_code or 502),
    )
    settle_now([settlement])


def _postpone(exchange_id: UUID, error: Exception) -> None:
    """Try later, then less often; the hold stays, and staff see the job by its last error."""
    job = EstimateJob.objects.filter(exchange_id=exchange_id).first()
    if job is None:
        return
    pause_s = RETRY_AFTER_S[min(job.attempt_count, len(RETRY_AFTER_S) - 1)]
    job.attempt_count = min(job.attempt_count + 1, 32_000)
    job.due_at = timezone.now() + timedelta(seconds=pause_s)
    job.last_error = type(error).__name__
    job.save(update_fields=["attempt_count", "due_at", "last_error"])
