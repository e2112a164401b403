"""Closing a month: a draft for every tenant that has anything to be put on one.

Each tenant is a transaction of its own, and one that has its invoice is passed by. So a run that
was killed is gone on with by the next, and two at once make the same documents as one.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from math import inf
from time import monotonic
from typing import Final

from django.db import connection
from django.db.models import F, Max
from django.utils import timezone

from billing.errors import MonthNotOver
from billing.invoices.drafting import draft_invoice
from billing.invoices.fees import collect_fees, make_fees_due
from billing.invoices.months import Month, month_before, month_of
from billing.models import Account, AccountKind, CloseRun, Invoice, InvoiceState
from keys.models import Tenant

logger = logging.getLogger(__name__)

GRACE: Final = timedelta(hours=6)  # after a month's end, for what settles late
TASK_S: Final = 200.0  # how long a task goes on taking tenants; the next one takes the others
TASK_ACTOR: Final = "month's close"


@dataclass(frozen=True, slots=True)
class Due:
    """A tenant whose month is over, in one of its currencies."""

    tenant: Tenant
    currency: str
    month: Month


def close_month(
    first: date,
    *,
    actor: str,
    only: Collection[int] | None = None,
    say: Callable[[CloseRun], object] = lambda _run: None,
) -> CloseRun:
    """Draft what is missing of the month; `say` hears of the run after every tenant.

    Tenants whose month is not over are left out, and with `only` all but those with these ids.
    Raises MonthNotOver where it is over for nobody.
    """
    now = timezone.now()
    if first > now.date():
        raise MonthNotOver(f"{first:%Y-%m} has not begun.")
    waiting = list(_waiting(first, only))
    due = [one for one in waiting if one.month.ends_at <= now]
    if waiting and not due:
        raise MonthNotOver(f"{first:%Y-%m} is not over yet.")
    return _run(first, due, actor, say)


def close_due_months() -> CloseRun | None:
    """The task of the month's first days: the month before, for those past its end and the grace.

    Whom a whole run has been at is not asked again, as most of them have their invoice, and the
    others nothing to put on one. None where there is nobody to ask.
    """
    now = timezone.now()
    first = month_before(now.astimezone(UTC).date())
    whole = CloseRun.objects.filter(
        month=first, actor=TASK_ACTOR, finished_at__isnull=False, failed_count=0
    )
    last_at = whole.aggregate(at=Max("started_at"))["at"]
    due = [
        one
        for one in _waiting(first)
        if one.month.ends_at + GRACE <= now
        and (last_at is None or one.month.ends_at + GRACE > last_at)
    ]
    return _run(first, due, TASK_ACTOR, stop_after_s=TASK_S) if due else None


def _run(
    first: date,
    due: Sequence[Due],
    actor: str,
    say: Callable[[CloseRun], object] = lambda _run: None,
    *,
    stop_after_s: float = inf,
) -> CloseRun:
    run = CloseRun.objects.create(month=first, actor=actor, tenant_count=len(due))
    began = monotonic()
    for one in due:
        if monotonic() - began > stop_after_s:
            break
        _close(run, one)
        say(run)
    else:
        run.finished_at = timezone.now()
        run.save(update_fields=["finished_at"])
    if run.drafted_count:
        _tell_the_planner()
    return run


def _tell_the_planner() -> None:
    """What was just listed, so that the first views of large drafts are not planned for none."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_invoiceexchange")


def _close(run: CloseRun, one: Due) -> None:
    """One that fails does not keep the others from their invoices; the next run tries it again."""
    try:
        if one.currency == one.tenant.currency:
            make_fees_due(one.tenant, one.month)
            collect_fees(one.tenant.pk)
        drafted = draft_invoice(one.tenant, one.currency, one.month, actor=run.actor)
        run.drafted_count += drafted is not None
    except Exception:
        logger.exception("Closing %s of tenant %s failed", f"{run.month:%Y-%m}", one.tenant.pk)
        run.failed_count += 1
    run.done_count += 1
    run.progress_at = timezone.now()
    run.save(update_fields=["done_count", "drafted_count", "failed_count", "progress_at"])


def _waiting(first: date, only: Collection[int] | None = None) -> Iterator[Due]:
    """Tenants without an invoice of the month, in every currency that they have money in."""
    invoiced = set(
        Invoice.objects.filter(month=first)
        .exclude(state=InvoiceState.VOID)
        .values_list("tenant_id", "currency")
    )
    other = Account.objects.filter(kind=AccountKind.WALLET).exclude(currency=F("tenant__currency"))
    others: dict[int, list[str]] = {}
    for tenant_id, currency in other.order_by("pk").values_list("tenant_id", "currency"):
        others.setdefault(tenant_id or 0, []).append(currency)
    months: dict[str, Month] = {}
    tenants = Tenant.objects.all() if only is None else Tenant.objects.filter(pk__in=only)
    for tenant in tenants.order_by("pk"):
        if tenant.time_zone not in months:
            months[tenant.time_zone] = month_of(first, tenant.time_zone)
        for currency in (tenant.currency, *others.get(tenant.pk, ())):
            if (tenant.pk, currency) not in invoiced:
                yield Due(tenant, currency, months[tenant.time_zone])
