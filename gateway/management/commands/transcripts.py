"""`manage.py transcripts`: what is kept of what a tenant says, and for how long."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.arguments import tenant_of
from keys.errors import BadTranscriptChoice
from keys.models import TranscriptPolicy
from keys.transcripts import DAYS_MAX, DAYS_MIN, set_transcripts


class Command(BaseCommand):
    help = "Show or set which transcripts of a tenant are kept, and for how many days."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--policy", choices=TranscriptPolicy.values)
        parser.add_argument("--days", type=int, help=f"{DAYS_MIN} to {DAYS_MAX}")
        parser.add_argument("--reason", default="", help="for the audit trail; needed to set")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant = tenant_of(options["tenant"])
        if options["policy"] is not None or options["days"] is not None:
            if not options["reason"].strip():
                raise CommandError("Give a --reason.")
            try:
                set_transcripts(
                    tenant,
                    options["policy"] or tenant.transcript_policy,
                    tenant.transcript_days if options["days"] is None else options["days"],
                    actor="manage.py transcripts",
                    reason=options["reason"],
                )
            except BadTranscriptChoice as error:
                raise CommandError(str(error)) from error
        self.stdout.write(
            f"{tenant.slug} keeps {tenant.transcript_policy} for {tenant.transcript_days} days."
        )
