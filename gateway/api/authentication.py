"""Who calls the API: the key in `Authorization: Bearer`, or in `x-api-key`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from django.db import DatabaseError, connection
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from gateway import errors
from keys import secrets
from keys.principals import PRINCIPAL_SQL, Principal, principal_from_row

BLANKS = " \t"


@dataclass(frozen=True, slots=True)
class Caller:
    """What DRF calls the user: a key, not a person."""

    principal: Principal
    is_authenticated: Literal[True] = True

    @property
    def pk(self) -> str:
        return self.principal.public_id


class KeyAuthentication(BaseAuthentication):
    """`request.user` is a `Caller`, `request.auth` its `Principal`.

    Raises ApiError: 401 for every key that proves nothing, in the same words whatever is wrong
    with it; 403 for a suspended tenant or a wrong network; 503 where PostgreSQL cannot be asked.
    """

    def authenticate(self, request: Request) -> tuple[Caller, Principal]:
        text = bearer_text(_headers(request))
        principal = _load(text) if text else None
        if text is None or principal is None or not principal.proves(text):
            raise errors.invalid_api_key()
        if not principal.tenant_is_active:
            raise errors.tenant_suspended()
        if not principal.may_come_from(request.META.get("REMOTE_ADDR", "")):
            raise errors.ip_not_allowed()
        return Caller(principal), principal

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002  # DRF's signature
        return "Bearer"


def bearer_text(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return what the client sent as its key; None where it sent none, or two that differ.

    Names are lower case, as ASGI has them. The scheme's case and blanks around the key do not
    matter; blanks inside it do. `x-api-key` counts where there is no Bearer.
    """
    bearers: set[str | None] = set()
    keys: set[str | None] = set()
    for name, value in headers:
        if name == b"authorization":
            scheme, blank, rest = _parted(value.decode("latin-1"))
            if blank and scheme.lower() == "bearer":
                bearers.add(_word(rest))
        elif name == b"x-api-key":
            keys.add(_word(value.decode("latin-1")))
    said = bearers or keys
    return said.pop() if len(said) == 1 else None


def _parted(value: str) -> tuple[str, str, str]:
    return value.strip(BLANKS).replace("\t", " ").partition(" ")


def _word(text: str) -> str | None:
    text = text.strip(BLANKS)
    return text if text and not any(blank in text for blank in BLANKS) else None


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    named = (("HTTP_AUTHORIZATION", b"authorization"), ("HTTP_X_API_KEY", b"x-api-key"))
    return [
        (name, request.META[variable].encode("latin-1", "replace"))
        for variable, name in named
        if variable in request.META
    ]


def _load(text: str) -> Principal | None:
    public_id = secrets.public_id_of(text)
    if public_id is None:
        return None
    try:
        with connection.cursor() as cursor:
            cursor.execute(PRINCIPAL_SQL, (public_id,))
            row = cursor.fetchone()
    except DatabaseError as error:
        raise errors.service_unavailable() from error
    return None if row is None else principal_from_row(row)
