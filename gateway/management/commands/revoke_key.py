"""`manage.py revoke_key`: refused everywhere within a second."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.arguments import tenant_of
from keys.errors import KeyNotFound
from keys.services import revoke_key


class Command(BaseCommand):
    help = "Revoke an API key of a tenant. Revoking twice is revoking once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("key", metavar="PUBLIC_ID", help="the ten characters after sk_live_")
        parser.add_argument("--reason", default="", help="for the audit trail")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            key = revoke_key(
                tenant_of(options["tenant"]),
                options["key"],
                actor="manage.py revoke_key",
                reason=options["reason"],
            )
        except KeyNotFound as error:
            raise CommandError(f"{options['tenant']}: {error}") from error
        self.stdout.write(f"{key.masked} ({key.name}) is revoked.")
