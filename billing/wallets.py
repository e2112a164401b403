"""Wallets: opened, topped up, given a credit limit. Each act is one transaction with its trail."""

from django.db import IntegrityError, transaction

from billing.errors import DuplicatePayment, InsufficientFunds
from billing.ids import new_exchange_id
from billing.locks import lock_wallet
from billing.models import Account, AccountKind, Payment, TransferCode
from billing.money import text_from_nanos
from billing.transfers import move, operator_account
from keys.models import AuditAction, Tenant
from keys.services import record

OPERATOR_KINDS = (
    AccountKind.FUNDING,
    AccountKind.REVENUE,
    AccountKind.ADJUSTMENTS,
    AccountKind.PROMOTIONS,
)


def open_wallet(tenant: Tenant) -> Account:
    """The tenant's wallet, made on first asking, with the operator's accounts of its currency."""
    for kind in OPERATOR_KINDS:
        operator_account(kind, tenant.currency)
    wallet, _ = Account.objects.get_or_create(
        tenant=tenant, kind=AccountKind.WALLET, currency=tenant.currency
    )
    return wallet


def top_up(
    tenant: Tenant, amount_nanos: int, *, payment_id: str, actor: str, reason: str = ""
) -> Account:
    """Credit a payment, once by its id, however many events tell of it.

    Raises DuplicatePayment; answers the wallet afterwards.
    """
    if amount_nanos <= 0:
        raise ValueError("A top-up is above zero.")
    open_wallet(tenant)
    try:
        with transaction.atomic():
            wallet = _credit_payment(tenant, amount_nanos, payment_id, reason)
            record(
                AuditAction.WALLET_TOPPED_UP,
                tenant_id=tenant.pk,
                actor=actor,
                subject=payment_id,
                reason=reason,
                detail={"amount": text_from_nanos(amount_nanos), "currency": tenant.currency},
            )
    except IntegrityError as error:
        if Payment.objects.filter(external_id=payment_id).exists():
            raise DuplicatePayment(f"Payment {payment_id} was credited before.") from error
        raise
    wallet.refresh_from_db()
    return wallet


def _credit_payment(tenant: Tenant, amount_nanos: int, payment_id: str, reason: str) -> Account:
    """The payment's unique id and its transfer stand or fall together."""
    payment = Payment.objects.create(
        external_id=payment_id,
        tenant=tenant,
        link=new_exchange_id(),
        amount_nanos=amount_nanos,
        currency=tenant.currency,
    )
    wallet = lock_wallet(tenant.pk, tenant.currency)
    move(
        operator_account(AccountKind.FUNDING, tenant.currency),
        wallet,
        amount_nanos,
        TransferCode.TOP_UP,
        tenant_id=tenant.pk,
        link=payment.link,
        reason=reason,
    )
    return wallet


def set_credit_limit(tenant: Tenant, limit_nanos: int, *, actor: str, reason: str) -> Account:
    """How far below zero the wallet may go; 0 is prepaid. Raises InsufficientFunds if it is in use.

    What is owed and held stays covered: a limit is lowered to what is in use at most.
    """
    if limit_nanos < 0:
        raise ValueError("A credit limit is not below zero.")
    open_wallet(tenant)
    try:
        with transaction.atomic():
            wallet = lock_wallet(tenant.pk, tenant.currency)
            before_nanos, wallet.credit_limit_nanos = wallet.credit_limit_nanos, limit_nanos
            wallet.save(update_fields=["credit_limit_nanos"])
            record(
                AuditAction.WALLET_CREDIT_LIMIT_SET,
                tenant_id=tenant.pk,
                actor=actor,
                subject=tenant.slug,
                reason=reason,
                detail={
                    "from": text_from_nanos(before_nanos),
                    "to": text_from_nanos(limit_nanos),
                    "currency": tenant.currency,
                },
            )
    except IntegrityError as error:
        raise InsufficientFunds("More than that is in use.") from error
    return wallet
