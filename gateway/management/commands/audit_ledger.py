"""`manage.py audit_ledger`: everything again from the transfers. Zero differences is the pass."""

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.audit import AuditReport, audit_and_keep
from billing.money import text_from_nanos

NANOS = "_nanos"


class Command(BaseCommand):
    help = "Recompute the ledger from its transfers; exits 1 where anything differs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object on stdout")

    def handle(self, *_args: Any, **options: Any) -> None:
        report = audit_and_keep()
        if options["json"]:
            self.stdout.write(json.dumps(asdict(report)))
        else:
            self._print(report)
        if not report.is_clean:
            raise CommandError(f"Differences: {len(report.differences)}.", returncode=1)

    def _print(self, report: AuditReport) -> None:
        for name, number in report.figures.items():
            is_money = name.endswith(NANOS)
            label = name.removesuffix(NANOS).replace("_", " ")
            self.stdout.write(f"{label:<12}{text_from_nanos(number) if is_money else number:>24}")
        for difference in report.differences:
            row = ", ".join(f"{name} {value}" for name, value in difference.row.items())
            self.stdout.write(f"! {difference.rule}: {row}")
        if report.is_clean:
            self.stdout.write("zero differences")
