"""`manage.py set_credit_limit`: how far a wallet may go below zero."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.errors import InsufficientFunds
from billing.money import text_from_nanos
from billing.wallets import set_credit_limit
from gateway.management.arguments import nanos_of, tenant_of


class Command(BaseCommand):
    help = "Let a tenant's wallet go below zero, up to an amount; 0 makes it prepaid."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--amount", required=True, help="in the tenant's currency: 500.00")
        parser.add_argument("--reason", required=True, help="for the audit trail")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant, nanos = tenant_of(options["tenant"]), nanos_of(options["amount"], may_be_zero=True)
        try:
            wallet = set_credit_limit(
                tenant, nanos, actor="manage.py set_credit_limit", reason=options["reason"]
            )
        except InsufficientFunds as error:
            raise CommandError(str(error)) from error
        available = text_from_nanos(wallet.available_nanos)
        self.stdout.write(f"{tenant.slug} may owe {text_from_nanos(nanos)} {tenant.currency}.")
        self.stdout.write(f"Available now: {available} {tenant.currency}.")
