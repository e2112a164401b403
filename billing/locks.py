"""The one lock of a tenant's money: its wallet's row.

It guards the wallet, the credits and the spend counters of its currency. Whatever moves any of
them takes it first, the hot path's statements in the order of the ids, everything else one wallet
a transaction: nobody waits in a circle.

Invoices have locks of their own, since a month of a busy tenant is drafted for longer than its
requests can wait: `lock_invoicing` for drafting, `lock_invoice` for an act on one. Neither is taken
by who holds a wallet's.
"""

from typing import Final

from django.db import connection

from billing.models import Account, AccountKind, Invoice

_INVOICING: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


def lock_wallet(tenant_id: int, currency: str) -> Account:
    """The wallet, locked until the transaction ends. Raises Account.DoesNotExist."""
    return Account.objects.select_for_update(no_key=True).get(
        tenant_id=tenant_id, kind=AccountKind.WALLET, currency=currency
    )


def lock_invoicing(tenant_id: int, currency: str) -> None:
    """One draft of a tenant and currency at a time, until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(_INVOICING, [f"invoicing {tenant_id} {currency}"])


def lock_invoice(invoice_id: int) -> Invoice:
    """The invoice, locked until the transaction ends. Raises Invoice.DoesNotExist."""
    return Invoice.objects.select_for_update(no_key=True).get(pk=invoice_id)
