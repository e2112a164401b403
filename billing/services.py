"""Acts on wallets. Each is one transaction with its payment, its transfer and its trail."""

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from billing.errors import DuplicatePayment
from billing.ids import new_exchange_id
from billing.models import Account, AccountKind, Payment, Phase, TransferCode
from billing.money import text_from_nanos
from keys.models import AuditAction, Tenant
from keys.services import record

OPERATOR_KINDS = (AccountKind.FUNDING, AccountKind.REVENUE, AccountKind.ADJUSTMENTS)


def open_wallet(tenant: Tenant) -> Account:
    """The tenant's wallet, made on first asking, with the operator's accounts of its currency."""
    for kind in OPERATOR_KINDS:
        Account.objects.get_or_create(tenant=None, kind=kind, currency=tenant.currency)
    wallet, _ = Account.objects.get_or_create(
        tenant=tenant, kind=AccountKind.WALLET, currency=tenant.currency
    )
    return wallet


def top_up(
    tenant: Tenant, amount_nanos: int, *, payment_id: str, actor: str, reason: str = ""
) -> Account:
    """Credit a payment, once by its id. Raises DuplicatePayment; answers the wallet afterwards."""
    if amount_nanos <= 0:
        raise ValueError("A top-up is above zero.")
    wallet = open_wallet(tenant)
    link = new_exchange_id()
    try:
        with transaction.atomic():
            Payment.objects.create(
                external_id=payment_id,
                tenant=tenant,
                link=link,
                amount_nanos=amount_nanos,
                currency=tenant.currency,
            )
            _post_top_up(wallet, link.hex, amount_nanos, reason)
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


def _post_top_up(wallet: Account, link: str, amount_nanos: int, reason: str) -> None:
    funding = Account.objects.get(tenant=None, kind=AccountKind.FUNDING, currency=wallet.currency)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,
                                          amount_nanos, phase, code, created_at, reason)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
            """,
            [
                link,
                wallet.tenant_id,
                funding.pk,
                wallet.pk,
                amount_nanos,
                int(Phase.SINGLE),
                str(TransferCode.TOP_UP),
                timezone.now(),
                reason or None,
            ],
        )
        cursor.execute(
            "UPDATE billing_account SET posted_nanos = posted_nanos + %s WHERE id = %s",
            [amount_nanos, wallet.pk],
        )
