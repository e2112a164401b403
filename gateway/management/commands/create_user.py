"""`manage.py create_user`: a person, their password printed once."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.management.arguments import tenant_of
from gateway.people import BadPerson, make_person
from keys.models import Role


class Command(BaseCommand):
    help = "Make a person with a new password, or give one who is there a role."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", required=True)
        parser.add_argument("--tenant", metavar="SLUG", help="they become a member of it")
        parser.add_argument("--role", choices=Role.values, help="what they are in the tenant")
        parser.add_argument("--staff", action="store_true", help="the operator's own people")

    def handle(self, *_args: Any, **options: Any) -> None:
        if bool(options["tenant"]) != bool(options["role"]):
            raise CommandError("--tenant and --role go together.")
        if not options["tenant"] and not options["staff"]:
            raise CommandError("Say --tenant and --role, or --staff.")
        tenant = tenant_of(options["tenant"]) if options["tenant"] else None
        try:
            person = make_person(
                options["email"],
                actor="manage.py create_user",
                tenant=tenant,
                role=Role(options["role"] or Role.VIEWER),
                is_staff=options["staff"],
            )
        except BadPerson as error:
            raise CommandError(str(error)) from error
        if person.password is None:
            self.stdout.write(f"{person.user.email} was there before; the password stays.")
        else:
            self.stderr.write(f"Made {person.user.email}. The password is shown this once:")
            self.stdout.write(person.password)
