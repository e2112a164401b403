"""Plan fees: due when a month is closed, charged to the wallet as soon as it carries them.

A plan is paid by the whole month, as its credit is given by the whole month: each plan that a
tenant was on at any moment of a month, once, by the terms at its first moment in that month.
"""

from collections.abc import Iterator
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from billing.errors import InsufficientFunds
from billing.ids import new_exchange_id
from billing.invoices.months import Month
from billing.locks import lock_wallet
from billing.models import (
    Account,
    AccountKind,
    Plan,
    PlanFee,
    PlanTerms,
    TenantPlan,
    TransferCode,
)
from billing.money import text_from_nanos
from billing.plans import assigned_at
from billing.transfers import move, operator_account
from keys.models import AuditAction, Tenant
from keys.services import record


def make_fees_due(tenant: Tenant, month: Month) -> int:
    """Write down what the month's plans cost, each once; answers how many were new."""
    made = 0
    for plan, moment in _plans_in(tenant, month):
        terms = PlanTerms.objects.filter(
            plan=plan, currency=tenant.currency, effective_from__lte=moment
        )
        in_force = terms.order_by("effective_from").last()
        if in_force is None or not in_force.monthly_fee_nanos:
            continue
        _, is_new = PlanFee.objects.get_or_create(
            tenant=tenant,
            plan=plan,
            month=month.first,
            defaults={
                "terms": in_force,
                "currency": tenant.currency,
                "amount_nanos": in_force.monthly_fee_nanos,
                "link": new_exchange_id(),
            },
        )
        made += is_new
    return made


def collect_fees(tenant_id: int | None = None) -> int:
    """Charge the due fees that their wallets can carry; answers how many.

    A task: run it often, twice, or at once.
    """
    can_pay = Account.objects.filter(
        tenant_id=OuterRef("tenant_id"),
        currency=OuterRef("currency"),
        kind=AccountKind.WALLET,
        posted_nanos__gte=OuterRef("amount_nanos") + F("held_nanos") - F("credit_limit_nanos"),
    )
    due = PlanFee.objects.filter(Exists(can_pay), charged_at=None)
    if tenant_id is not None:
        due = due.filter(tenant_id=tenant_id)
    return sum(_charge(fee_id) for fee_id in due.order_by("pk").values_list("pk", flat=True))


def _plans_in(tenant: Tenant, month: Month) -> Iterator[tuple[Plan, datetime]]:
    """Each plan of the month with its first moment in it."""
    before = assigned_at(tenant.pk, month.starts_at)
    within = TenantPlan.objects.filter(
        tenant=tenant, starts_at__gt=month.starts_at, starts_at__lt=month.ends_at
    )
    firsts: dict[Plan, datetime] = {}
    for assigned in [before, *within.select_related("plan").order_by("starts_at")]:
        if assigned is not None and assigned.plan is not None:
            firsts.setdefault(assigned.plan, max(assigned.starts_at, month.starts_at))
    yield from firsts.items()


def _charge(fee_id: int) -> bool:
    """False where somebody else charged it, or the money is gone meanwhile."""
    fee = PlanFee.objects.select_related("plan").get(pk=fee_id)
    try:
        with transaction.atomic():
            return _move_fee(fee)
    except InsufficientFunds:
        return False


def _move_fee(fee: PlanFee) -> bool:
    wallet = lock_wallet(fee.tenant_id, fee.currency)
    fee.refresh_from_db(fields=["charged_at"])
    if fee.charged_at is not None:
        return False
    move(
        wallet,
        operator_account(AccountKind.REVENUE, fee.currency),
        fee.amount_nanos,
        TransferCode.FEE,
        tenant_id=fee.tenant_id,
        link=fee.link,
        reason=f"Plan {fee.plan.name}, {fee.month:%Y-%m}",
    )
    fee.charged_at = timezone.now()
    fee.save(update_fields=["charged_at"])
    record(
        AuditAction.FEE_CHARGED,
        tenant_id=fee.tenant_id,
        actor=f"plan {fee.plan.name}",
        subject=str(fee),
        detail={
            "month": f"{fee.month:%Y-%m}",
            "amount": text_from_nanos(fee.amount_nanos),
            "currency": fee.currency,
        },
    )
    return True
