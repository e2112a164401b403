"""Plans of tenants: which is in force when, and what its terms make of prices."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from billing.errors import BadPlanStart
from billing.models import Plan, PlanTerms, Price, TenantPlan
from billing.rating import PriceVersion, version_of
from keys.models import AuditAction, Tenant
from keys.services import record

CLOCK_LEEWAY = timedelta(minutes=1)


def assign_plan(
    tenant: Tenant,
    plan: Plan | None,
    *,
    actor: str,
    starts_at: datetime | None = None,
    reason: str = "",
) -> TenantPlan:
    """Put a tenant on a plan, None for none, from a moment on. Twice the same is once.

    Raises BadPlanStart for a moment that is past, or at which another plan starts already.
    """
    now = timezone.now()
    starts_at = starts_at or now
    if starts_at < now - CLOCK_LEEWAY:
        raise BadPlanStart("A plan starts now or later: what was charged stays.")
    with transaction.atomic():
        assigned, is_new = TenantPlan.objects.get_or_create(
            tenant=tenant, starts_at=starts_at, defaults={"plan": plan}
        )
        if assigned.plan_id != (None if plan is None else plan.pk):
            raise BadPlanStart("Another plan starts at that very moment.")
        if is_new:
            record(
                AuditAction.PLAN_ASSIGNED,
                tenant_id=tenant.pk,
                actor=actor,
                subject="none" if plan is None else plan.name,
                reason=reason,
                detail={"starts_at": starts_at.isoformat()},
            )
    return assigned


def assigned_at(tenant_id: int, moment: datetime) -> TenantPlan | None:
    """The assignment in force; its plan is None where the tenant left its plan."""
    assigned = TenantPlan.objects.filter(tenant_id=tenant_id, starts_at__lte=moment)
    return assigned.select_related("plan").order_by("starts_at").last()


def terms_at(tenant_id: int, currency: str, moment: datetime) -> PlanTerms | None:
    """The terms of the tenant's plan, None where it is on none, or on one without such terms."""
    assigned = assigned_at(tenant_id, moment)
    if assigned is None or assigned.plan is None:
        return None
    terms = PlanTerms.objects.filter(
        plan=assigned.plan, currency=currency, effective_from__lte=moment
    )
    return terms.select_related("plan").order_by("effective_from").last()


def versions_at(
    models: Iterable[str], currency: str, moment: datetime, terms: PlanTerms | None
) -> dict[str, PriceVersion]:
    """What each model costs under the terms; one without a complete price is left out.

    A plan's own price wins over the list price.
    """
    prices = (
        Price.objects.filter(
            Q(plan=None) | Q(plan=None if terms is None else terms.plan_id),
            model__in=list(models),
            currency=currency,
            effective_from__lte=moment,
        )
        .order_by("model", F("plan_id").asc(nulls_last=True), "-effective_from")
        .distinct("model")
    )
    return {price.model: version_of(price, terms) for price in prices if price.is_complete}
