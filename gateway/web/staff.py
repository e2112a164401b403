"""The operator's first page: does the ledger add up, and does anything hang."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.views.decorators.http import require_safe

from billing.models import AuditRun, EstimateJob, Exchange, ExchangeState, StaffNotice
from gateway.web.operator import render_staff, staff_page

STUCK_JOBS = 20
NOTICES = 20


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Exchanges in one state that is not the last."""

    state: str
    count: int
    oldest_at: datetime


@require_safe
@staff_page
def index(request: HttpRequest) -> HttpResponseBase:
    now = timezone.now()
    unsettled = list(_unsettled())
    context = {
        "audit": AuditRun.objects.order_by("-pk").first(),
        "unsettled": unsettled,
        "unsettled_count": sum(state.count for state in unsettled),
        "oldest_at": min((state.oldest_at for state in unsettled), default=None),
        "stuck": EstimateJob.objects.exclude(last_error=None).order_by("created_at")[:STUCK_JOBS],
        "notices": StaffNotice.objects.order_by("-at", "-pk")[:NOTICES],
        "as_of": now,
    }
    return render_staff(request, "staff/index.html", context)


def _unsettled() -> Iterator[Unsettled]:
    rows = (
        Exchange.objects.exclude(state=ExchangeState.SETTLED)
        .values_list("state")
        .annotate(count=Count("id"), oldest_at=Min("created_at"))
        .order_by("state")
    )
    return (Unsettled(*row) for row in rows)
