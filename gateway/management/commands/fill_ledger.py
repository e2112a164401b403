"""`manage.py fill_ledger`: exchanges by the million, to measure with."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from billing.filling import EXCHANGES_MAX, fill


class Command(BaseCommand):
    help = "Add settled exchanges of made-up tenants. They stay: never where money is real."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--exchanges", type=int, default=1_000_000, metavar="N")
        parser.add_argument("--database", required=True, metavar="NAME", help="to be sure")

    def handle(self, *_args: Any, **options: Any) -> None:
        name = str(connection.settings_dict["NAME"])
        if options["database"] != name:
            raise CommandError(f"This would fill the database {name!r}.")
        if not 0 < options["exchanges"] <= EXCHANGES_MAX:
            raise CommandError(f"1 to {EXCHANGES_MAX} exchanges.")
        fill(options["exchanges"], lambda done: self.stdout.write(f"{done:,}"))
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE billing_exchange, billing_charge, billing_transfer")
