"""`manage.py create_tenant`: an organisation with an empty wallet."""

import re
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_slug
from django.db import transaction

from billing.wallets import open_wallet
from keys.models import Tenant
from keys.services import create_tenant
from keys.time_zones import check_time_zone

CURRENCY = re.compile(r"[A-Z]{3}")
NAME_CHARACTERS_MAX = 100
SLUG_CHARACTERS_MAX = 50


class Command(BaseCommand):
    help = "Make a tenant and its wallet."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True, help="as people read it")
        parser.add_argument("--slug", required=True, help="as commands and URLs name it")
        parser.add_argument("--currency", default="USD", help="three letters; the wallet's")
        parser.add_argument(
            "--time-zone", default="UTC", help="where its days and months begin: Europe/Amsterdam"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        name, slug, currency = options["name"].strip(), options["slug"], options["currency"]
        check(name, slug, currency)
        try:
            check_time_zone(options["time_zone"])
        except ValidationError as error:
            raise CommandError(error.messages[0]) from error
        with transaction.atomic():
            tenant = create_tenant(
                name,
                slug,
                actor="manage.py create_tenant",
                currency=currency,
                time_zone=options["time_zone"],
            )
            open_wallet(tenant)
        self.stdout.write(f"Made the tenant {slug} with an empty wallet in {currency}.")


def check(name: str, slug: str, currency: str) -> None:
    """Raises CommandError."""
    try:
        validate_slug(slug)
    except ValidationError:
        raise CommandError("A slug is letters, digits, '-' and '_'.") from None
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise CommandError(f"A name has 1 to {NAME_CHARACTERS_MAX} characters.")
    if len(slug) > SLUG_CHARACTERS_MAX:
        raise CommandError(f"A slug has at most {SLUG_CHARACTERS_MAX} characters.")
    if not CURRENCY.fullmatch(currency):
        raise CommandError("A currency is three capital letters such as USD.")
    if Tenant.objects.filter(slug=slug).exists():
        raise CommandError(f"There is a tenant {slug!r} already.")
