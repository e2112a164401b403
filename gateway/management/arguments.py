"""What several commands read from their arguments."""

from datetime import UTC, datetime
from typing import Final

from django.core.management.base import CommandError

from billing.money import NANOS_PER_UNIT, NotMoney, nanos_from_text
from keys.models import Tenant

AMOUNT_CHARACTERS_MAX: Final = 24
AMOUNT_UNITS_MAX: Final = 1_000_000_000  # some of them fit a wallet's 64 bits of nanos


def tenant_of(slug: str) -> Tenant:
    """Raises CommandError."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise CommandError(f"There is no tenant {slug!r}; `create_tenant` makes one.")
    return tenant


def nanos_of(text: str) -> int:
    """An amount above zero. Raises CommandError."""
    try:
        nanos = nanos_from_text(text) if len(text) <= AMOUNT_CHARACTERS_MAX else 0
    except NotMoney as error:
        raise CommandError(str(error)) from error
    if not 0 < nanos <= AMOUNT_UNITS_MAX * NANOS_PER_UNIT:
        raise CommandError(f"{text!r} is no amount above zero and up to {AMOUNT_UNITS_MAX}.")
    return nanos


def moment_of(text: str) -> datetime:
    """RFC 3339; a date alone is its first moment in UTC. Raises CommandError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is no time; expected one like 2027-01-31T12:00Z.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
