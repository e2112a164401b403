"""`manage.py assign_plan`: put a tenant on a plan, or off it, from a moment on."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from billing.errors import BadPlanStart
from billing.models import Plan
from billing.plans import assign_plan
from gateway.management.arguments import moment_of, tenant_of


class Command(BaseCommand):
    help = "Put a tenant on a plan of the catalog, from now on or from a moment to come."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--plan", metavar="NAME")
        which.add_argument("--none", action="store_true", help="on no plan: list prices")
        parser.add_argument("--from", dest="starts_at", metavar="TIME", help="left out: now")
        parser.add_argument("--reason", default="", help="for the audit trail")

    def handle(self, *_args: Any, **options: Any) -> None:
        tenant, name = tenant_of(options["tenant"]), options["plan"]
        plan = None if name is None else Plan.objects.filter(name=name).first()
        if name is not None and plan is None:
            raise CommandError(f"There is no plan {name!r}; the catalog file makes plans.")
        try:
            assigned = assign_plan(
                tenant,
                plan,
                starts_at=moment_of(options["starts_at"]) if options["starts_at"] else None,
                actor="manage.py assign_plan",
                reason=options["reason"],
            )
        except BadPlanStart as error:
            raise CommandError(str(error)) from error
        when = f"{assigned.starts_at:%Y-%m-%d %H:%M:%S} UTC"
        self.stdout.write(f"{tenant.slug} is on {name or 'no plan'} from {when} on.")
