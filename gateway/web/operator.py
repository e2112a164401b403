"""The operator's pages: who may see them, and the frame around them."""

from functools import wraps
from typing import Any

from allauth.account.decorators import reauthentication_required
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.cache import never_cache

from gateway.web.place import View
from keys.models import User

# The operator's, also for one who is a member somewhere.
FRAME = {"mode": "staff", "available_nanos": None, "health": None}


def staff_page(view: View) -> View:
    """Allow staff only. Kept in no cache, as a tenant's pages are not."""

    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not (isinstance(request.user, User) and request.user.is_staff):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return never_cache(login_required(shown))


def staff_act(view: View) -> View:
    """A page of the operator that acts: what it posts asks again who somebody is, after a while."""
    confirmed: View = reauthentication_required(allow_get=True)(view)
    return staff_page(confirmed)


def actor_of(request: HttpRequest) -> str:
    """Who acts, for the audit trail, on a page that let in nobody but staff."""
    assert isinstance(request.user, User)  # noqa: S101  # for the type checker
    return request.user.email


def render_staff(
    request: HttpRequest, template: str, context: dict[str, Any], status: int = 200
) -> HttpResponse:
    return render(request, template, {**FRAME, **context}, status=status)
