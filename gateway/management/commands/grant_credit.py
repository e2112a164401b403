"""`manage.py grant_credit`: promotional credit, once by its id."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from billing.credits import grant_credit
from billing.errors import DuplicateGrant
from billing.money import text_from_nanos
from gateway.management.arguments import moment_of, nanos_of, tenant_of


class Command(BaseCommand):
    help = "Grant credit that is spent before the wallet and expires. The same id grants once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--amount", required=True, help="in the tenant's currency: 10.00")
        parser.add_argument("--expires", required=True, metavar="TIME", help="RFC 3339, or a date")
        parser.add_argument("--id", required=True, dest="grant_id", help="names the grant")
        parser.add_argument("--reason", default="", help="for the audit trail")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant, nanos = tenant_of(options["tenant"]), nanos_of(options["amount"])
        expires_at = moment_of(options["expires"])
        if expires_at <= timezone.now():
            raise CommandError("Credit expires at a time to come.")
        try:
            grant_credit(
                tenant,
                nanos,
                grant_id=options["grant_id"],
                expires_at=expires_at,
                actor="manage.py grant_credit",
                reason=options["reason"],
            )
        except DuplicateGrant as error:
            self.stdout.write(f"{error} Nothing was granted now.")
            return
        amount = f"{text_from_nanos(nanos)} {tenant.currency}"
        self.stdout.write(f"Granted {amount} to {tenant.slug} until {expires_at:%Y-%m-%d %H:%M}.")
