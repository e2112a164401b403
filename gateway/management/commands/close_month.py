"""`manage.py close_month YYYY-MM`: a draft invoice for every tenant. Run it again if it died."""

from datetime import date, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.errors import MonthNotOver
from billing.invoices.closing import close_month
from billing.models import CloseRun
from gateway.management.arguments import tenant_of

ACTOR = "manage.py close_month"


class Command(BaseCommand):
    help = (
        "Draft what is missing of a month's invoices, one a tenant. It may run twice, or at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", metavar="YYYY-MM")
        parser.add_argument("--tenant", action="append", metavar="SLUG", help="these alone")

    def handle(self, *_args: Any, **options: Any) -> None:
        only = options["tenant"] and [tenant_of(slug).pk for slug in options["tenant"]]
        try:
            run = close_month(_first(options["month"]), actor=ACTOR, only=only, say=self._say)
        except MonthNotOver as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"drafted {run.drafted_count}")
        if run.failed_count:
            raise CommandError(f"{run.failed_count} failed; the log says why. Run it again.")

    def _say(self, run: CloseRun) -> None:
        self.stdout.write(str(run))
        self.stdout.flush()


def _first(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m").date()  # noqa: DTZ007  # a month has no zone
    except ValueError:
        raise CommandError(f"{text!r} is no month; expected one like 2027-01.") from None
