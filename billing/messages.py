"""What tenants are told. Ten thousand of a kind are one line with a count."""

from uuid import UUID

from django.db import connection
from django.utils import timezone

ESTIMATED = "vendor returned no token usage; billed at estimate"
CUT_SHORT = "balance or limit used up in mid-answer; it ended early, billed for what was produced"
INTERRUPTED = "the gateway stopped in mid-answer; what was delivered is billed at estimate"

_UPSERT = """
INSERT INTO billing_message (tenant_id, category, user_message, user_status, is_test, count,
                             total_nanos, currency, first_at, last_at, last_exchange_id)
VALUES (%(tenant_id)s, %(category)s, %(user_message)s, %(user_status)s, %(is_test)s, 1,
        %(nanos)s, %(currency)s, %(now)s, %(now)s, %(exchange_id)s)
ON CONFLICT (tenant_id, category, user_message, is_test) WHERE archived_at IS NULL
DO UPDATE SET count = billing_message.count + 1,
              total_nanos = billing_message.total_nanos + excluded.total_nanos,
              last_at = excluded.last_at,
              last_exchange_id = excluded.last_exchange_id,
              read_at = NULL
"""


def tell(
    tenant_id: int,
    category: str,
    user_message: str,
    *,
    user_status: int | None,
    exchange_id: UUID | None,
    nanos: int,
    currency: str,
    is_test: bool,
) -> None:
    """Add one to the open message of this kind, in the transaction of what it tells about.

    `exchange_id` is None where it is about no exchange.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _UPSERT,
            {
                "tenant_id": tenant_id,
                "category": category,
                "user_message": user_message,
                "user_status": user_status,
                "is_test": is_test,
                "nanos": nanos,
                "currency": currency,
                "now": timezone.now(),
                "exchange_id": exchange_id,
            },
        )


def status_message(user_message: str, user_status: int | None) -> dict[str, object]:
    """The four fields of an exchange's status message; the vendor had nothing to say."""
    return {
        "vendor_status": None,
        "vendor_message": None,
        "user_status": user_status,
        "user_message": user_message,
    }
