"""`manage.py make_code`: the only line on stdout is the redemption code, shown this once."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from billing.codes import make_code
from gateway.management.arguments import moment_of, nanos_of

CREDIT_DAYS_MAX = 3_650


class Command(BaseCommand):
    help = "Make a code that credits whoever redeems it first, and print it, once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--amount", required=True, help="10.00")
        parser.add_argument("--currency", default="USD")
        parser.add_argument("--expires", required=True, metavar="TIME", help="RFC 3339, or a date")
        parser.add_argument(
            "--credit-days", type=int, metavar="N", help="grant credit for so long; else a top-up"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        expires_at, days = moment_of(options["expires"]), options["credit_days"]
        if expires_at <= timezone.now():
            raise CommandError("A code expires at a time to come.")
        if days is not None and not 1 <= days <= CREDIT_DAYS_MAX:
            raise CommandError(f"Credit lasts 1 to {CREDIT_DAYS_MAX} days.")
        made = make_code(
            nanos_of(options["amount"]),
            options["currency"],
            expires_at=expires_at,
            actor="manage.py make_code",
            credit_days=days,
        )
        self.stdout.write(made.text)
