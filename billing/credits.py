"""Promotional credit: granted, spent before the wallet, gone when it expires; never refunded.

Each grant is an account of its own. What a request held before the expiry it may still spend.
"""

from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from billing.errors import DuplicateGrant
from billing.ids import new_exchange_id
from billing.locks import lock_wallet
from billing.models import Account, AccountKind, Credit, TransferCode
from billing.money import text_from_nanos
from billing.transfers import move, operator_account
from billing.wallets import open_wallet
from keys.models import AuditAction, Tenant
from keys.services import record


def grant_credit(
    tenant: Tenant,
    amount_nanos: int,
    *,
    grant_id: str,
    expires_at: datetime,
    actor: str,
    reason: str = "",
) -> Credit:
    """Grant credit once by its id. Raises DuplicateGrant."""
    if amount_nanos <= 0 or expires_at <= timezone.now():
        raise ValueError("A credit is above zero and expires later.")
    open_wallet(tenant)
    try:
        with transaction.atomic():
            credit = _grant(tenant, amount_nanos, grant_id, expires_at, reason)
            record(
                AuditAction.CREDIT_GRANTED,
                tenant_id=tenant.pk,
                actor=actor,
                subject=grant_id,
                reason=reason,
                detail={
                    "amount": text_from_nanos(amount_nanos),
                    "currency": tenant.currency,
                    "expires_at": expires_at.isoformat(),
                },
            )
    except IntegrityError as error:
        if Credit.objects.filter(external_id=grant_id).exists():
            raise DuplicateGrant(f"{grant_id} was granted before.") from error
        raise
    return credit


def _grant(
    tenant: Tenant, amount_nanos: int, grant_id: str, expires_at: datetime, reason: str
) -> Credit:
    wallet = lock_wallet(tenant.pk, tenant.currency)
    account = Account.objects.create(
        tenant=tenant, kind=AccountKind.CREDIT, currency=tenant.currency, expires_at=expires_at
    )
    credit = Credit.objects.create(
        external_id=grant_id,
        tenant=tenant,
        account=account,
        link=new_exchange_id(),
        amount_nanos=amount_nanos,
        reason=reason,
    )
    promotions = operator_account(AccountKind.PROMOTIONS, tenant.currency)
    move(
        promotions,
        account,
        amount_nanos,
        TransferCode.GRANT,
        tenant_id=tenant.pk,
        link=credit.link,
        reason=reason,
    )
    wallet.has_credits = True
    wallet.save(update_fields=["has_credits"])
    return credit


def expire_credits(now: datetime | None = None) -> int:
    """Take back what has expired and is not held; answers how many accounts it emptied.

    A task: run it often, twice, or at once. What is held is taken when its request has ended.
    """
    now = now or timezone.now()
    expired = Account.objects.filter(
        tenant_id=OuterRef("tenant_id"),
        currency=OuterRef("currency"),
        kind=AccountKind.CREDIT,
        expires_at__lte=now,
        posted_nanos__gt=F("held_nanos"),
    )
    live = Account.objects.filter(
        tenant_id=OuterRef("tenant_id"),
        currency=OuterRef("currency"),
        kind=AccountKind.CREDIT,
        posted_nanos__gt=0,
    )
    wallets = Account.objects.filter(kind=AccountKind.WALLET, has_credits=True)
    due = wallets.filter(Exists(expired) | ~Exists(live)).order_by("pk")
    return sum(_expire(wallet, now) for wallet in due)


def _expire(wallet: Account, now: datetime) -> int:
    promotions = operator_account(AccountKind.PROMOTIONS, wallet.currency)
    tenant_id = wallet.tenant_id or 0
    with transaction.atomic():
        wallet = lock_wallet(tenant_id, wallet.currency)
        granted = Account.objects.filter(
            tenant_id=tenant_id, currency=wallet.currency, kind=AccountKind.CREDIT
        )
        expired = granted.filter(expires_at__lte=now, posted_nanos__gt=F("held_nanos"))
        emptied = list(expired.order_by("pk"))
        for account in emptied:
            move(
                account,
                promotions,
                account.posted_nanos - account.held_nanos,
                TransferCode.EXPIRY,
                tenant_id=tenant_id,
                link=new_exchange_id(),
            )
        wallet.has_credits = granted.filter(posted_nanos__gt=0).exists()
        wallet.save(update_fields=["has_credits"])
    return len(emptied)
