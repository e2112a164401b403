"""People whom the operator makes: from commands and for the demo."""

import secrets
from dataclasses import dataclass, field

from allauth.account.models import EmailAddress
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from keys.models import AuditAction, Member, Role, Tenant, User
from keys.services import add_member, record

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
    actor: str,
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
        person = _found(email)
        if person is None:
            person = _made(email, password or new_password())
            record(AuditAction.USER_CREATED, tenant_id=None, actor=actor, subject=email)
        if is_staff and not person.user.is_staff:
            person.user.is_staff = True
            person.user.save(update_fields=["is_staff"])
            record(AuditAction.USER_MADE_STAFF, tenant_id=None, actor=actor, subject=email)
        if tenant is not None:
            _join(tenant, person.user, role, actor)
    return person


def new_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _join(tenant: Tenant, user: User, role: Role, actor: str) -> None:
    if Member.objects.filter(tenant=tenant, user=user, role=role).exists():
        return
    add_member(tenant, user, role)
    record(
        AuditAction.MEMBER_ADDED,
        tenant_id=tenant.pk,
        actor=actor,
        subject=user.email,
        detail={"role": str(role)},
    )


def _found(email: str) -> Person | None:
    user = User.objects.filter(email__iexact=email).first()
    return None if user is None else Person(user, None)


def _made(email: str, password: str) -> Person:
    user = User.objects.create_user(email, password)
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    return Person(user, password)
