"""People whom the operator makes: from commands and for the demo."""

import secrets
from dataclasses import dataclass, field

from allauth.account.models import EmailAddress
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from keys.models import Role, Tenant, User
from keys.services import add_member

PASSWORD_BYTES = 12


class BadPerson(ValueError):
    """Something about a person that cannot be; the words say what."""


@dataclass(frozen=True, slots=True)
class Person:
    """`password` is None for somebody who was there before: theirs stays."""

    user: User
    password: str | None = field(repr=False)


def make_person(
    email: str,
    *,
    password: str | None = None,
    tenant: Tenant | None = None,
    role: Role = Role.OWNER,
    is_staff: bool = False,
) -> Person:
    """Make the user, or find them; a member of `tenant` in `role` afterwards. Raises BadPerson.

    The address counts as verified, since the operator vouches for it. `is_staff` is given, never
    taken away.
    """
    try:
        validate_email(email)
    except ValidationError:
        raise BadPerson(f"{email!r} is no e-mail address.") from None
    with transaction.atomic():
        person = _found(email) or _made(email, password or new_password())
        if is_staff and not person.user.is_staff:
            person.user.is_staff = True
            person.user.save(update_fields=["is_staff"])
        if tenant is not None:
            add_member(tenant, person.user, role)
    return person


def new_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _found(email: str) -> Person | None:
    user = User.objects.filter(email__iexact=email).first()
    return None if user is None else Person(user, None)


def _made(email: str, password: str) -> Person:
    user = User.objects.create_user(email, password)
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    return Person(user, password)
