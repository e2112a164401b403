"""Checks that people ask for: queued in PostgreSQL, made by a worker, within the daily cost.

Celery only carries the number of a job. A task that is lost is found again by the schedule; one
that is delivered twice finds its job begun, and begins nothing.
"""

from collections.abc import Iterable
from typing import Final

from django.db import transaction
from django.utils import timezone

from gateway.models import CheckJob, Vendor
from gateway.qualification.bounds import DEFAULT_BOUNDS, Bounds
from gateway.qualification.cost import DAY, DAY_TOKENS, may_spend, spent_tokens
from gateway.qualification.making import alone, checked
from gateway.qualification.standing import keep, subjects_of
from keys.models import AuditAction
from keys.services import record

CUT_OFF: Final = "the worker was stopped in the middle of it"
NO_ROUTE: Final = "no route of an active vendor names the model any more"


class CannotAskError(Exception):
    """The check may not be made now; the words say why. Nothing was done."""


def ask(vendor: Vendor, model: str, *, actor: str) -> CheckJob:
    """Queue a check; one of this model that is queued or runs already is the answer instead.

    Raises CannotAskError. Whoever calls tells Celery of the job.
    """
    now = timezone.now()
    with transaction.atomic():
        locked = Vendor.objects.select_for_update().get(pk=vendor.pk)
        if not locked.is_active or all(s.model != model for s in subjects_of(locked)):
            raise CannotAskError("No route names this model.")
        jobs = CheckJob.objects.filter(vendor=locked)
        open_job = jobs.filter(vendor_model=model, finished_at=None).first()
        if open_job is not None:
            return open_job
        if not may_spend(locked, now):
            raise CannotAskError(
                f"Checks of {locked.name} have cost or may cost {spent_tokens(locked, now):,} of "
                f"{DAY_TOKENS:,} tokens in 24 hours, and one more may cost "
                f"{DEFAULT_BOUNDS.tokens:,}."
            )
        jobs.filter(finished_at__lt=now - DAY).delete()
        record(
            AuditAction.VENDOR_CHECK_ASKED,
            tenant_id=None,
            actor=actor,
            subject=locked.name,
            detail={"model": model},
        )
        return jobs.create(vendor=locked, vendor_model=model, asked_by=actor, asked_at=now)


def make_asked(job_id: int, *, bounds: Bounds = DEFAULT_BOUNDS) -> bool:
    """Make the check of a job that waits. Blocks for `bounds.run_s` at most.

    False where another check is being made: the job waits on.
    """
    with alone() as is_ours:
        if is_ours:
            make_waiting(job_id, bounds=bounds)
        return is_ours


def make_waiting(job_id: int, *, bounds: Bounds) -> None:
    """As `make_asked`, for who is `alone`: a job that has begun is then known to be dead.

    It is not begun again by itself, since a run costs tokens.
    """
    waiting = CheckJob.objects.filter(pk=job_id, finished_at=None)
    if not waiting.filter(started_at=None).update(started_at=timezone.now()):
        waiting.update(finished_at=timezone.now(), problem=CUT_OFF)
        return
    job = waiting.select_related("vendor").get()
    known = {s.model: s for s in subjects_of(job.vendor)} if job.vendor.is_active else {}
    subject = known.get(job.vendor_model)
    if subject is None:
        waiting.update(started_at=None, finished_at=timezone.now(), problem=NO_ROUTE)
        return
    found = checked(job.vendor, subject, bounds)
    with transaction.atomic():
        keep(job.vendor, *found)
        waiting.update(finished_at=timezone.now())


def oldest_waiting() -> int | None:
    """The key of the job that has waited longest, begun or not; None where none waits."""
    waiting = CheckJob.objects.filter(finished_at=None).order_by("pk")
    return waiting.values_list("pk", flat=True).first()


def latest_jobs(vendors: Iterable[Vendor]) -> list[CheckJob]:
    """The newest job of each model; those that ended a day ago may be gone."""
    jobs = CheckJob.objects.filter(vendor__in=list(vendors))
    newest = jobs.order_by("vendor_id", "vendor_model", "-pk")
    return list(newest.distinct("vendor_id", "vendor_model"))
