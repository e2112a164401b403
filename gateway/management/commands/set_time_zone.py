"""`manage.py set_time_zone`: where a tenant's days and months begin."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.arguments import tenant_of
from keys.services import set_time_zone


class Command(BaseCommand):
    help = "Move a tenant to a time zone: its limits and its months follow."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--time-zone", required=True, help="an IANA name: Europe/Amsterdam")
        parser.add_argument("--reason", required=True, help="for the audit trail")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = tenant_of(options["tenant"])
        try:
            set_time_zone(
                tenant,
                options["time_zone"],
                actor="manage.py set_time_zone",
                reason=options["reason"],
            )
        except ValidationError as error:
            raise CommandError(error.messages[0]) from error
        self.stdout.write(f"{tenant.slug} is in {options['time_zone']}.")
