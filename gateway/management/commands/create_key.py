"""`manage.py create_key`: the only line on stdout is the secret, shown this once."""

from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.arguments import moment_of, tenant_of
from gateway.models import Model
from keys.errors import BadKeyRequest
from keys.models import KeyKind
from keys.services import KeyLimits, create_key


class Command(BaseCommand):
    help = "Make an API key of a tenant and print its secret, once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--name", required=True, help="what the key is for")
        parser.add_argument("--kind", choices=["live", "test"], default="live")
        parser.add_argument(
            "--model", action="append", metavar="NAME", help="allow this model; may be repeated"
        )
        parser.add_argument("--rpm", type=int, metavar="N", help="requests a minute")
        parser.add_argument("--concurrency", type=int, metavar="N", help="requests at a time")
        parser.add_argument("--expires", metavar="TIME", help="RFC 3339, or a date (UTC)")

    def handle(self, *_args: Any, **options: Any) -> None:
        check_models(options["model"] or ())
        limits = KeyLimits(
            allowed_models=options["model"],
            requests_per_minute=options["rpm"],
            concurrent_requests=options["concurrency"],
            expires_at=moment_of(options["expires"]) if options["expires"] else None,
        )
        try:
            created = create_key(
                tenant_of(options["tenant"]),
                options["name"],
                actor="manage.py create_key",
                kind=KeyKind(options["kind"]),
                limits=limits,
            )
        except BadKeyRequest as error:
            raise CommandError(f"{error.field}: {error}") from error
        self.stderr.write(f"Made {created.key.masked}. Its secret is shown this once:")
        self.stdout.write(created.secret)


def check_models(names: Sequence[str]) -> None:
    """A misspelt model would make a key that can do nothing. Raises CommandError."""
    known = set(Model.objects.filter(name__in=names).values_list("name", flat=True))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CommandError(f"The catalog has no model {', '.join(unknown)}.")
