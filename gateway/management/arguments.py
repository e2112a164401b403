"""What several commands read from their arguments."""

from datetime import UTC, datetime
from typing import Final

from django.core.management.base import CommandError

from billing.money import NANOS_PER_UNIT, NotMoney, nanos_from_text
from keys.models import Tenant, User

AMOUNT_CHARACTERS_MAX: Final = 24
AMOUNT_UNITS_MAX: Final = 1_000_000_000  # some of them fit a wallet's 64 bits of nanos


def tenant_of(slug: str) -> Tenant:
    """Raises CommandError."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise CommandError(f"There is no tenant {slug!r}; `create_tenant` makes one.")
    return tenant


def staff_of(email: str) -> str:
    """The address of one of the operator's people, as it stands. Raises CommandError."""
    user = User.objects.filter(email__iexact=email, is_staff=True, is_active=True).first()
    if user is None:
        raise CommandError(f"There is nobody on the staff with the address {email!r}.")
    return user.email


def nanos_of(text: str, *, may_be_zero: bool = False) -> int:
    """An amount above zero, or zero where that means something. Raises CommandError."""
    least = 0 if may_be_zero else 1
    try:
        nanos = nanos_from_text(text) if len(text) <= AMOUNT_CHARACTERS_MAX else -1
    except NotMoney as error:
        raise CommandError(str(error)) from error
    if not least <= nanos <= AMOUNT_UNITS_MAX * NANOS_PER_UNIT:
        above = "" if may_be_zero else " above zero and"
        raise CommandError(f"{text!r} is no amount{above} up to {AMOUNT_UNITS_MAX}.")
    return nanos


def moment_of(text: str) -> datetime:
    """RFC 3339; a date alone is its first moment in UTC. Raises CommandError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is no time; expected one like 2027-01-31T12:00Z.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
