"""`manage.py top_up`: credit a payment, exactly once by its id."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.errors import DuplicatePayment
from billing.models import Payment
from billing.money import text_from_nanos
from billing.wallets import top_up
from gateway.management.arguments import nanos_of, tenant_of
from keys.models import Tenant

PAYMENT_ID_CHARACTERS_MAX = 200


class Command(BaseCommand):
    help = "Credit a payment to a tenant's wallet. The same payment twice is credited once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--amount", required=True, help="in the tenant's currency: 10.00")
        parser.add_argument("--payment", required=True, metavar="ID", help="names the payment")
        parser.add_argument("--reason", default="", help="for the audit trail")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant, payment_id = tenant_of(options["tenant"]), options["payment"].strip()
        nanos = nanos_of(options["amount"])
        if not 0 < len(payment_id) <= PAYMENT_ID_CHARACTERS_MAX:
            raise CommandError(f"A payment's id has 1 to {PAYMENT_ID_CHARACTERS_MAX} characters.")
        try:
            wallet = top_up(
                tenant,
                nanos,
                payment_id=payment_id,
                actor="manage.py top_up",
                reason=options["reason"],
            )
        except DuplicatePayment:
            self.stdout.write(credited_before(tenant, nanos, payment_id))
            return
        amount, balance = text_from_nanos(nanos), text_from_nanos(wallet.posted_nanos)
        self.stdout.write(f"Credited {amount} {tenant.currency} to {tenant.slug}.")
        self.stdout.write(f"Its balance is {balance} {tenant.currency}.")


def credited_before(tenant: Tenant, nanos: int, payment_id: str) -> str:
    """The same payment again is no failure; another one under its id is. Raises CommandError."""
    payment = Payment.objects.select_related("tenant").get(external_id=payment_id)
    words = (
        f"Payment {payment_id} was credited before, on {payment.created_at:%Y-%m-%d %H:%M} UTC: "
        f"{text_from_nanos(payment.amount_nanos)} {payment.currency} to {payment.tenant.slug}. "
        "Nothing was credited now."
    )
    if (payment.tenant, payment.amount_nanos) != (tenant, nanos):
        raise CommandError(f"{words} That is another payment than the one given.")
    return words
