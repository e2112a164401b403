"""Moving money at once, in one phase: all that is neither held nor charged."""

from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from billing.errors import InsufficientFunds
from billing.models import Account, AccountKind, Phase, TransferCode

_WRITE = """
INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,
                              amount_nanos, phase, code, created_at, reason)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

# The table itself refuses what would take held money, or more than there is.
_MOVE = """
UPDATE billing_account
SET posted_nanos = posted_nanos + CASE WHEN id = %s THEN %s ELSE -%s END
WHERE id IN (%s, %s) AND kind IN ('wallet', 'credit')
"""


def move(
    debit: Account,
    credit: Account,
    amount_nanos: int,
    code: TransferCode,
    *,
    tenant_id: int,
    link: UUID,
    reason: str = "",
) -> None:
    """One transfer and the balances it changes. The caller holds the tenant's wallet's lock.

    Raises InsufficientFunds where the debit account cannot give it; then nothing was written.
    """
    row = (link, tenant_id, debit.pk, credit.pk, amount_nanos, int(Phase.SINGLE), str(code))
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_WRITE, [*row, timezone.now(), reason or None])
            cursor.execute(_MOVE, [credit.pk, amount_nanos, amount_nanos, debit.pk, credit.pk])
    except IntegrityError as error:
        if "never_overspent" not in str(error):
            raise
        raise InsufficientFunds("There is not so much that is free.") from error


def operator_account(kind: AccountKind, currency: str) -> Account:
    account, _ = Account.objects.get_or_create(tenant=None, kind=kind, currency=currency)
    return account
