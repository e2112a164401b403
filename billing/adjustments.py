"""Corrections and refunds: by a person, with a reason, above a threshold by two.

`proposed` → `posted` or `declined`; what is decided stays so, by a trigger too.
"""

from typing import Final

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from billing.errors import BadAdjustment, InsufficientFunds
from billing.ids import new_exchange_id
from billing.locks import lock_wallet
from billing.models import (
    Account,
    AccountKind,
    Adjustment,
    AdjustmentState,
    Payment,
    TransferCode,
)
from billing.money import NANOS_PER_UNIT, text_from_nanos
from billing.transfers import move, operator_account
from billing.wallets import open_wallet
from keys.models import AuditAction, Tenant
from keys.services import record

TWO_PEOPLE_ABOVE_NANOS: Final = 100 * NANOS_PER_UNIT
REASON_CHARACTERS_MAX: Final = 500


def adjust(tenant: Tenant, amount_nanos: int, *, actor: str, reason: str) -> Adjustment:
    """Give the wallet `amount_nanos`, or take them where it is below zero.

    Posted at once up to `TWO_PEOPLE_ABOVE_NANOS`, else proposed. Raises BadAdjustment and
    InsufficientFunds.
    """
    return _propose(tenant, None, amount_nanos, actor, reason)


def refund(payment: Payment, amount_nanos: int, *, actor: str, reason: str) -> Adjustment:
    """Give a payment back, or a part of it, out of what is left of the wallet.

    Credit is never refunded, and neither is what a credit limit lends. As `adjust` otherwise.
    """
    if amount_nanos <= 0:
        raise BadAdjustment("A refund is above zero.")
    return _propose(payment.tenant, payment, -amount_nanos, actor, reason)


def approve(adjustment_id: int, *, actor: str) -> Adjustment:
    """The second person. Raises BadAdjustment, also for the person who proposed it."""
    with transaction.atomic():
        adjustment = _undecided(adjustment_id)
        if adjustment.proposed_by == actor:
            raise BadAdjustment("Whoever proposed it cannot approve it.")
        _post(adjustment, actor)
    return adjustment


def decline(adjustment_id: int, *, actor: str, reason: str) -> Adjustment:
    with transaction.atomic():
        adjustment = _undecided(adjustment_id)
        _decide(adjustment, AdjustmentState.DECLINED, actor)
        _leave_trail(AuditAction.WALLET_ADJUSTMENT_DECLINED, adjustment, actor, reason)
    return adjustment


def _propose(
    tenant: Tenant, payment: Payment | None, amount_nanos: int, actor: str, reason: str
) -> Adjustment:
    reason = reason.strip()
    if not reason or len(reason) > REASON_CHARACTERS_MAX or amount_nanos == 0:
        raise BadAdjustment("An adjustment needs an amount and a reason.")
    open_wallet(tenant)
    with transaction.atomic():
        wallet = lock_wallet(tenant.pk, tenant.currency)
        if payment is not None:
            _check_refundable(wallet, payment, -amount_nanos)
        adjustment = Adjustment.objects.create(
            tenant=tenant,
            payment=payment,
            link=new_exchange_id(),
            amount_nanos=amount_nanos,
            currency=tenant.currency,
            reason=reason,
            proposed_by=actor,
        )
        if abs(amount_nanos) <= TWO_PEOPLE_ABOVE_NANOS:
            _post(adjustment, actor)
        else:
            _leave_trail(AuditAction.WALLET_ADJUSTMENT_PROPOSED, adjustment, actor, reason)
    return adjustment


def _check_refundable(wallet: Account, payment: Payment, amount_nanos: int) -> None:
    if payment.currency != wallet.currency:
        raise BadAdjustment("The payment was in another currency.")
    others = Adjustment.objects.filter(payment=payment).exclude(state=AdjustmentState.DECLINED)
    refunded = -(others.aggregate(nanos=Sum("amount_nanos"))["nanos"] or 0)
    if refunded + amount_nanos > payment.amount_nanos:
        raise BadAdjustment("That is more than is left of the payment.")
    _check_own_money(wallet, amount_nanos)


def _check_own_money(wallet: Account, amount_nanos: int) -> None:
    """What a credit limit lends is nobody's to take out."""
    if wallet.posted_nanos - wallet.held_nanos < amount_nanos:
        raise InsufficientFunds("There is not so much that is free.")


def _undecided(adjustment_id: int) -> Adjustment:
    """The adjustment, with its wallet locked first and its own row then."""
    adjustment = Adjustment.objects.filter(pk=adjustment_id).first()
    if adjustment is None:
        raise BadAdjustment("There is no such adjustment.")
    lock_wallet(adjustment.tenant_id, adjustment.currency)
    adjustment.refresh_from_db()
    if adjustment.state != AdjustmentState.PROPOSED:
        raise BadAdjustment(f"It is {adjustment.state} already.")
    return adjustment


def _post(adjustment: Adjustment, actor: str) -> None:
    wallet = lock_wallet(adjustment.tenant_id, adjustment.currency)
    is_refund = adjustment.payment_id is not None
    kind = AccountKind.FUNDING if is_refund else AccountKind.ADJUSTMENTS
    other, amount_nanos = operator_account(kind, wallet.currency), abs(adjustment.amount_nanos)
    if is_refund:
        _check_own_money(wallet, amount_nanos)
    debit, credit = (other, wallet) if adjustment.amount_nanos > 0 else (wallet, other)
    move(
        debit,
        credit,
        amount_nanos,
        TransferCode.REFUND if is_refund else TransferCode.ADJUSTMENT,
        tenant_id=adjustment.tenant_id,
        link=adjustment.link,
        reason=adjustment.reason,
    )
    _decide(adjustment, AdjustmentState.POSTED, actor)
    action = AuditAction.WALLET_REFUNDED if is_refund else AuditAction.WALLET_ADJUSTED
    _leave_trail(action, adjustment, actor, adjustment.reason)


def _decide(adjustment: Adjustment, state: AdjustmentState, actor: str) -> None:
    adjustment.state, adjustment.decided_by = state, actor
    adjustment.decided_at = timezone.now()
    adjustment.save(update_fields=["state", "decided_by", "decided_at"])


def _leave_trail(action: AuditAction, adjustment: Adjustment, actor: str, reason: str) -> None:
    record(
        action,
        tenant_id=adjustment.tenant_id,
        actor=actor,
        subject=str(adjustment),
        reason=reason,
        detail={
            "amount": text_from_nanos(adjustment.amount_nanos),
            "currency": adjustment.currency,
        },
    )
