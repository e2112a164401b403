"""The one lock of a tenant's money: its wallet's row.

It guards the wallet, the credits and the spend counters of its currency. Whatever moves any of
them takes it first, the hot path's statements in the order of the ids, everything else one wallet
a transaction: nobody waits in a circle.
"""

from billing.models import Account, AccountKind


def lock_wallet(tenant_id: int, currency: str) -> Account:
    """The wallet, locked until the transaction ends. Raises Account.DoesNotExist."""
    return Account.objects.select_for_update(no_key=True).get(
        tenant_id=tenant_id, kind=AccountKind.WALLET, currency=currency
    )
