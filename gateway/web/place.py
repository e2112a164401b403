"""Where a signed-in person is: in which tenant, in which role, among live or among test things.

Tenant and mode are the session's, and a membership is asked for again with every request: who was
removed from a tenant is out of it with the next click.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from allauth.account.decorators import reauthentication_required
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

from keys.models import MAY_MANAGE_KEYS, MAY_SEE_INVOICES, KeyKind, Member, Role, Tenant, User
from keys.selectors import memberships_of

LIVE = "live"
TEST = "test"
MODES = (LIVE, TEST)
TENANT_SLOT = "tenant"
MODE_SLOT = "mode"
KINDS = {LIVE: (KeyKind.LIVE, KeyKind.SYSTEM), TEST: (KeyKind.TEST,)}


@dataclass(frozen=True, slots=True)
class Place:
    """One of the person's memberships, and the mode. `tenants` are all that they may change to."""

    member: Member
    mode: str
    tenants: tuple[Tenant, ...]

    @property
    def tenant(self) -> Tenant:
        return self.member.tenant

    @property
    def is_test(self) -> bool:
        return self.mode == TEST

    @property
    def key_kinds(self) -> tuple[KeyKind, ...]:
        return KINDS[self.mode]

    @property
    def may_manage_keys(self) -> bool:
        return self.member.role in MAY_MANAGE_KEYS

    @property
    def may_see_invoices(self) -> bool:
        return self.member.role in MAY_SEE_INVOICES

    @property
    def may_handle_messages(self) -> bool:
        return self.member.role != Role.VIEWER


View = Callable[..., HttpResponseBase]
"""Of a request, and after `tenant_page` of a place too, and of what the address names."""


def place_of(request: HttpRequest) -> Place | None:
    """None for who is signed out, or belongs to no tenant. Asked once a request."""
    if not hasattr(request, "_farthing_place"):
        user = request.user
        request._farthing_place = _found(request, user) if isinstance(user, User) else None  # type: ignore[attr-defined]  # noqa: SLF001
    place: Place | None = request._farthing_place  # type: ignore[attr-defined]  # noqa: SLF001
    return place


def _found(request: HttpRequest, user: User) -> Place | None:
    memberships = list(memberships_of(user))
    if not memberships:
        return None
    chosen = request.session.get(TENANT_SLOT)
    member = next((m for m in memberships if m.tenant_id == chosen), memberships[0])
    mode = request.session.get(MODE_SLOT)
    return Place(
        member=member,
        mode=mode if mode in MODES else LIVE,
        tenants=tuple(membership.tenant for membership in memberships),
    )


def tenant_page(view: View) -> View:
    """Hand the view its place. Pages of a tenant are kept in no cache, not even the browser's."""

    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        place = place_of(request)
        if place is None:
            return redirect("home")
        return view(request, place, *args, **kwargs)

    return never_cache(login_required(shown))


def keys_act(view: View) -> View:
    """Allow roles that manage keys only, and ask them again who they are."""
    confirmed: View = reauthentication_required(view)

    @wraps(view)
    def allowed(request: HttpRequest, place: Place, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not place.may_manage_keys:
            raise PermissionDenied
        return confirmed(request, place, *args, **kwargs)

    return allowed
