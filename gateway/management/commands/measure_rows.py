"""`manage.py measure_rows`: what an exchange takes in PostgreSQL."""

from typing import Any

from django.core.management.base import BaseCommand

from billing.filling import bytes_per_exchange


class Command(BaseCommand):
    help = "Print the bytes an exchange takes: its row, its transfers, its charge, indexes apart."

    def handle(self, *_args: Any, **_options: Any) -> None:
        sizes = bytes_per_exchange()
        sizes["together"] = tuple(map(sum, zip(*sizes.values(), strict=True)))  # type: ignore[assignment]
        self.stdout.write(f"{'bytes an exchange':<20}{'rows':>8}{'indexes':>10}")
        for table, (rows, indexes) in sizes.items():
            self.stdout.write(f"{table:<20}{rows:>8}{indexes:>10}")
