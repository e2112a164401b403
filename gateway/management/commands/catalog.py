"""`manage.py catalog apply FILE [--dry-run]` and `catalog export [--with-credentials]`."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.catalog.apply import apply_file
from gateway.catalog.entries import CatalogMistakes
from gateway.catalog.export import export


class Command(BaseCommand):
    help = "Apply a file of vendors, models, routes and prices, or write one (docs/catalog.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        apply = acts.add_parser("apply", help="make the database say what FILE says")
        apply.add_argument("file", type=Path, metavar="FILE")
        apply.add_argument(
            "--dry-run", action="store_true", help="print the changes, make none of them"
        )
        writes = acts.add_parser("export", help="print a file that can be applied again")
        writes.add_argument(
            "--with-credentials", action="store_true", help="vendors' credentials in clear"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["act"] == "export":
            self.stdout.write(export(with_credentials=options["with_credentials"]), ending="")
        else:
            self._apply(options["file"], is_dry_run=options["dry_run"])

    def _apply(self, path: Path, *, is_dry_run: bool) -> None:
        try:
            diff = apply_file(path, actor="manage.py catalog", dry_run=is_dry_run)
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
        except CatalogMistakes as mistakes:
            raise CommandError(f"{path} was not applied.\n{mistakes}") from mistakes
        for line in diff.lines():
            self.stdout.write(line)
