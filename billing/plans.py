"""Plans of tenants: which is in force when, what its terms make of prices, what they give."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from billing.credits import grant_credit
from billing.errors import BadPlanStart, DuplicateGrant
from billing.limits import period_at, set_limit
from billing.models import (
    Credit,
    LimitAction,
    LimitPeriod,
    Plan,
    PlanTerms,
    Price,
    SpendLimit,
    TenantPlan,
)
from billing.rating import PriceVersion, version_of
from keys.models import AuditAction, Tenant, TenantState
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


def give_what_plans_include(now: datetime | None = None) -> int:
    """Grant the month's included credit and set the default limits; answers how many were made.

    A task: run it often, twice, or at once. The credit is once a tenant, plan and month of the
    tenant's time zone, by the grant's id. A limit is set where the tenant had none of its period
    since it came on the plan, so that one that was removed stays removed.
    """
    now = now or timezone.now()
    assigned = (
        TenantPlan.objects.filter(starts_at__lte=now, tenant__state=TenantState.ACTIVE)
        .select_related("tenant", "plan")
        .order_by("tenant", "-starts_at")
        .distinct("tenant")
    )
    return sum(_give(one, now) for one in assigned if one.plan is not None)


def _give(assigned: TenantPlan, now: datetime) -> int:
    tenant = assigned.tenant
    terms = terms_at(tenant.pk, tenant.currency, now)
    if terms is None:
        return 0
    return _grant_month(tenant, terms, now) + _set_default_limits(assigned, terms)


def _grant_month(tenant: Tenant, terms: PlanTerms, now: datetime) -> int:
    _, ends_at = period_at(LimitPeriod.MONTH, now, tenant.time_zone)
    month = f"{now.astimezone(ZoneInfo(tenant.time_zone)):%Y-%m}"
    grant_id = f"plan-{terms.plan_id}-tenant-{tenant.pk}-{month}"
    is_granted = Credit.objects.filter(external_id=grant_id).exists()
    if not terms.included_credit_nanos or ends_at is None or is_granted:
        return 0
    try:
        grant_credit(
            tenant,
            terms.included_credit_nanos,
            grant_id=grant_id,
            expires_at=ends_at,
            actor=f"plan {terms.plan.name}",
            reason="included in the plan",
        )
    except DuplicateGrant:
        return 0
    return 1


def _set_default_limits(assigned: TenantPlan, terms: PlanTerms) -> int:
    tenant = assigned.tenant
    of_tenant = SpendLimit.objects.filter(
        account__tenant=tenant, account__currency=tenant.currency, key=None, user=None
    )
    known = of_tenant.filter(Q(removed_at=None) | Q(removed_at__gte=assigned.starts_at))
    made = 0
    for period, limit in terms.spend_limits.items():
        if not known.filter(period=period).exists():
            set_limit(
                tenant,
                LimitPeriod(period),
                limit["amount_nanos"],
                action=LimitAction(limit["action"]),
                actor=f"plan {terms.plan.name}",
                reason="a default of the plan",
            )
            made += 1
    return made
