"""Exchanges whose tokens a worker counts, since their vendor did not.

PostgreSQL's state is the truth. Every function here may run twice, late, or beside itself: the
settlement is once by a unique key, and what it tells the tenant is told in its transaction.

A try is counted before it is made, so that a job that kills its worker ends too. After the last
one nothing is charged: what cannot be counted is not the tenant's to pay.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
from django.db import connection, transaction
from django.utils import timezone

from billing.corrections import in_force, value_of
from billing.estimation import Correction, Estimate, estimate
from billing.ledger import Facts, SettleAnswer, Settlement, settle_now
from billing.messages import CUT_SHORT, ESTIMATED, INTERRUPTED, status_message, tell
from billing.models import EstimateJob, Exchange, MessageCategory, NoticeKind
from billing.notices import notify_staff
from billing.rating import cost_nanos, version_of
from billing.usage import Usage, UsageReading, read_usage
from gateway.exchanges.rereading import reread
from gateway.relay.capture import unpack

logger = logging.getLogger(__name__)

JOBS_A_SWEEP = 500
# After each failed try; together a day, in which a fault of ours can be mended.
RETRY_AFTER_S = (10, 60, 300, 900, 3_600, 7_200, 14_400, 28_800, 28_800)
TRIES_MAX = len(RETRY_AFTER_S) + 1
TOLD_STAFF_AT_TRY = 4
GIVEN_UP = "estimate_given_up"

_TAKE = """
UPDATE billing_estimatejob
SET attempt_count = attempt_count + 1,
    due_at = clock_timestamp()
        + make_interval(secs => (%(pauses)s::int[])[least(attempt_count, %(last)s) + 1])
WHERE exchange_id = %(id)s AND is_ready AND (due_at <= clock_timestamp() OR attempt_count = 0)
RETURNING attempt_count
"""


def settle_by_estimate(exchange_id: UUID) -> SettleAnswer | None:
    """Count what the vendor did not, and settle. None if there is nothing (more) to do, or not now.

    Raises what the counting raises; the job is then due again later, `TRIES_MAX` times in all.
    """
    attempt = _take(exchange_id)
    if attempt is None:
        return None
    job = EstimateJob.objects.get(exchange_id=exchange_id)
    exchange = Exchange.objects.select_related("price", "terms").filter(id=exchange_id).first()
    if exchange is None:
        job.delete()
        return None
    if attempt > TRIES_MAX:
        return _give_up(exchange, job)
    try:
        answer = _count_and_settle(exchange, job)
    except Exception as error:
        _note(exchange, attempt, error)
        raise
    _forget(exchange_id, answer)
    return answer


def settle_due(settled: Callable[[], None]) -> int:
    """Settle what waits for its count; answers how many it took up and calls back after each."""
    due = EstimateJob.objects.filter(is_ready=True, due_at__lte=timezone.now()).order_by("due_at")
    taken = 0
    for exchange_id in due.values_list("exchange_id", flat=True)[:JOBS_A_SWEEP]:
        taken += 1
        try:
            settle_by_estimate(exchange_id)
        except Exception:
            logger.exception("Exchange %s could not be estimated", exchange_id)
        settled()
    return taken


def _take(exchange_id: UUID) -> int | None:
    """Count a try of the job, if it is due; its number, or None."""
    with connection.cursor() as cursor:
        pauses = list(RETRY_AFTER_S)
        cursor.execute(_TAKE, {"id": exchange_id, "pauses": pauses, "last": len(pauses) - 1})
        row = cursor.fetchone()
    return None if row is None else int(row[0])


def _count_and_settle(exchange: Exchange, job: EstimateJob) -> SettleAnswer:
    replay = _Replay(job)
    counted = _count(job, replay, _correction(exchange, job))
    usage = replay.reading.with_estimates(
        prompt=counted.prompt_tokens, completion=counted.completion_tokens
    )
    return _settle(exchange, job, replay, usage, counted)


def _note(exchange: Exchange, attempt: int, error: Exception) -> None:
    """Say what went wrong, to staff too if it stays so; the hold stays."""
    EstimateJob.objects.filter(exchange_id=exchange.id).update(last_error=type(error).__name__)
    if attempt >= TOLD_STAFF_AT_TRY:
        notify_staff(
            NoticeKind.ESTIMATE_FAILS, exchange.id, exchange.tenant_id, type(error).__name__
        )


def _give_up(exchange: Exchange, job: EstimateJob) -> SettleAnswer:
    """The last step: nothing is charged, the hold is free again, staff are told."""
    settlement = Settlement(
        exchange_id=exchange.id,
        tenant_id=exchange.tenant_id,
        currency=exchange.currency,
        cost_nanos=0,
        usage=Usage(),
        usage_source="none",
        outcome=str(job.facts.get("outcome", "partial")),
        settled_at=timezone.now(),
        flags=(GIVEN_UP,),
    )
    with transaction.atomic():
        (answer,) = settle_now([settlement])
        notify_staff(
            NoticeKind.ESTIMATE_GIVEN_UP, exchange.id, exchange.tenant_id, job.last_error or ""
        )
    _forget(exchange.id, answer)
    return answer


def _forget(exchange_id: UUID, answer: SettleAnswer) -> None:
    """A settlement takes its job with it; one of an exchange that is settled already cannot."""
    if not answer.is_settled_now:
        EstimateJob.objects.filter(exchange_id=exchange_id).delete()


class _Replay:
    """The vendor's answer, read again from what was captured of it."""

    def __init__(self, job: EstimateJob) -> None:
        self.request: dict[str, Any] = orjson.loads(unpack(bytes(job.request or b"")))
        facts = job.facts
        head = facts.get("head") or {"status": 0, "headers": []}
        answer = unpack(bytes(job.answer or b""))
        self.relay = reread(job.vendor_model, head["status"], head["headers"], answer)
        self.completion = self.relay.completion
        self.reading: UsageReading = read_usage(
            self.relay.raw_usage,
            has_output=self.relay.has_output,
            cached_beside=facts.get("cached_beside"),
        )


def _correction(exchange: Exchange, job: EstimateJob) -> Correction | None:
    """The one that was in force when the request arrived, whatever staff decided since."""
    vendor = job.facts.get("vendor")
    return value_of(in_force(vendor, job.vendor_model, exchange.created_at)) if vendor else None


def _count(job: EstimateJob, replay: _Replay, correction: Correction | None) -> Estimate:
    facts = job.facts
    counted = estimate(
        replay.request,
        replay.completion,
        model=job.vendor_model,
        family=job.family,
        finish_reason=replay.relay.finish_reason,
        max_output_tokens=facts["output_bound"],
        n=facts["choices"],
        correction=correction,
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
            message=_message(told, exchange),
        ),
        flags=(*replay.reading.flags, *counted.flags),
        vendor_usage=replay.reading.raw,
        estimate=_kept(counted),
    )
    return _settle_and_tell(exchange, settlement, told)


def _message(told: str | None, exchange: Exchange) -> dict[str, Any] | None:
    """What a gateway has said already stays: it knows which limit ended the answer."""
    if told is None or told == CUT_SHORT:
        return None
    return status_message(told, exchange.status_code or 200)


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
        "correction": counted.correction,
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
