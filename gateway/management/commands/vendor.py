"""`manage.py vendor`: what people decide about vendors, always with a reason."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.models import Vendor
from gateway.qualification.acts import ACTS, BY_NAME
from gateway.qualification.gate import admission, state_of
from gateway.qualification.standing import BadReasonError


class Command(BaseCommand):
    help = "Show which vendors take live traffic and why, or decide it (docs/vendors.md)."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        acts.add_parser("list", help="every active vendor, its state, and whether it is let in")
        for act in ACTS:
            parsed = acts.add_parser(act.name, help=act.help)
            parsed.add_argument("vendor", metavar="VENDOR")
            parsed.add_argument("--reason", required=True, help="for the audit trail")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["act"] == "list":
            for row in Vendor.objects.filter(is_active=True).order_by("name"):
                self.stdout.write(line_of(row))
            return
        vendor = Vendor.objects.filter(name=options["vendor"]).first()
        if vendor is None:
            raise CommandError(f"There is no vendor {options['vendor']!r}.")
        decide = BY_NAME[options["act"]].decide
        try:
            decide(vendor, actor="manage.py vendor", reason=options["reason"])
        except BadReasonError as error:
            raise CommandError(str(error)) from error
        vendor.refresh_from_db()
        self.stdout.write(line_of(vendor))


def line_of(vendor: Vendor) -> str:
    found = admission(vendor)
    traffic = "live" if found.is_open else "no live traffic"
    return f"{vendor.name}: {state_of(vendor)}, {traffic}. {found.reason}"
