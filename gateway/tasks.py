"""Celery tasks. Thin: each calls one service, and may be delivered twice, late or out of order."""

import logging
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from celery import shared_task
from django.utils import timezone

from billing import sweeps
from billing.audit import audit_and_keep
from billing.invoices.closing import close_due_months
from gateway.exchanges import comparing, estimating, forgetting, partitions, recovery
from gateway.qualification.asking import make_asked, oldest_waiting
from gateway.qualification.recheck import recheck_due

logger = logging.getLogger(__name__)

# Below the time after which the broker hands a task that is not done to another worker.
AUDIT_S: Final = 540
CLOSE_S: Final = 540
COMPARE_S: Final = 540
SPARE_S: Final = 30


def tell(task: Any, *arguments: Any) -> None:
    """Send a task. If Redis is away nothing is lost: the schedule finds it in PostgreSQL."""
    try:
        task.apply_async(arguments, retry=False)
    except Exception as error:  # noqa: BLE001  # kombu raises its transports' own errors
        logger.warning("Celery was not told of %s: %s", arguments, type(error).__name__)


@shared_task(name="gateway.estimate_exchange")
def estimate_exchange(exchange_id: str) -> None:
    estimating.settle_by_estimate(UUID(exchange_id))


@shared_task(name="gateway.sweep")
def sweep() -> None:
    """Find what a lost task, a dead gateway or a crash has left open."""
    recovery.sweep()


@shared_task(name="gateway.sweep_money")
def sweep_money() -> None:
    """Expire credits, give what plans include, tell of limits, watch keys."""
    sweeps.sweep_money()


@shared_task(name="gateway.make_partitions")
def make_partitions() -> None:
    partitions.make()


@shared_task(name="gateway.recheck_vendors")
def recheck_vendors() -> None:
    """Check the vendor model that has waited longest, of those that need a qualification."""
    recheck_due()
    _tell_next()


@shared_task(name="gateway.check_vendor")
def check_vendor(job_id: int) -> None:
    """Make the check that somebody asked for, while no other is made."""
    if make_asked(job_id):
        _tell_next()


def _tell_next() -> None:
    """Whose task came while another check was made waits for this."""
    job_id = oldest_waiting()
    if job_id is not None:
        tell(check_vendor, job_id)


@shared_task(name="gateway.forget")
def forget() -> None:
    forgetting.forget_idempotent_answers()


@shared_task(name="gateway.forget_transcripts")
def forget_transcripts() -> None:
    forgetting.forget_transcripts(timezone.now())


@shared_task(name="gateway.close_months", soft_time_limit=CLOSE_S, time_limit=CLOSE_S + SPARE_S)
def close_months() -> None:
    """Draft the invoices of the month before; what it has no time for, the next one does."""
    close_due_months()


@shared_task(name="gateway.audit", soft_time_limit=AUDIT_S, time_limit=AUDIT_S + SPARE_S)
def audit() -> None:
    """The whole ledger, once a night; staff see what it found."""
    audit_and_keep()


@shared_task(
    name="gateway.compare_counts", soft_time_limit=COMPARE_S, time_limit=COMPARE_S + SPARE_S
)
def compare_counts() -> None:
    """Yesterday's counts of vendors beside ours; what it has no time for, the next one does."""
    comparing.compare_counts(timezone.now().date() - timedelta(days=1))
