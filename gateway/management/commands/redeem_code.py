"""`manage.py redeem_code`: the code is read from stdin, so that it stands in no process list."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.codes import TEXT_CHARACTERS_MAX, redeem_code
from billing.errors import BadCode
from billing.money import text_from_nanos
from gateway.management.arguments import tenant_of


class Command(BaseCommand):
    help = "Redeem a code, read from stdin, for a tenant."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = tenant_of(options["tenant"])
        try:
            code = redeem_code(
                tenant,
                sys.stdin.readline(TEXT_CHARACTERS_MAX).strip(),
                actor="manage.py redeem_code",
            )
        except BadCode as error:
            raise CommandError(str(error)) from error
        amount = text_from_nanos(code.amount_nanos)
        self.stdout.write(f"Credited {amount} {code.currency} to {tenant.slug}.")
