"""`manage.py compare_counts`: vendors' own token counts beside ours, as every night does it."""

from datetime import date, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from billing.models import CountComparison
from gateway.exchanges.comparing import compare_counts


class Command(BaseCommand):
    help = "Compare a day's sample of every vendor model, once; and propose corrections to staff."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--day", metavar="YYYY-MM-DD", help="a day of UTC; yesterday without it"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        day = _day(options["day"])
        compared = compare_counts(day)
        for row in CountComparison.objects.filter(day=day).order_by("vendor", "vendor_model"):
            self.stdout.write(f"{row.vendor} {row.vendor_model}: {_words(row)}")
        self.stdout.write(f"compared {compared}")


def _words(row: CountComparison) -> str:
    sides = [
        f"{name} {side['sample_size']}, median {side['median_error']}, p95 {side['p95_error']},"
        f" beyond ours {side['bias']}"
        for name, side in (("prompts", row.prompt), ("completions", row.completion))
        if side is not None
    ]
    return "; ".join([*sides, *(["reports more than usual"] if row.is_drifting else [])])


def _day(text: str | None) -> date:
    if text is None:
        return timezone.now().date() - timedelta(days=1)
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is no day; expected one like 2027-01-31.") from None
