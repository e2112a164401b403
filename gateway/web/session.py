"""What a person changes for themselves: the tenant, the mode. Both live in the session."""

from urllib.parse import urlsplit

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from gateway.web.place import MODE_SLOT, MODES, TENANT_SLOT, Place, place_of, tenant_page
from keys.models import User
from keys.selectors import keys_of

SECTIONS = frozenset({"keys", "requests", "messages", "invoices"})


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponseBase:
    """Requests, or keys where nothing can be requested yet."""
    place = place_of(request)
    if place is not None:
        has_key = keys_of(place.tenant, place.key_kinds).exists()
        return redirect("requests" if has_key else "keys")
    if isinstance(request.user, User) and request.user.is_staff:
        return redirect("staff")
    return render(request, "tenant/none.html")


@require_POST
@tenant_page
def change_tenant(request: HttpRequest, place: Place) -> HttpResponseBase:
    wanted = request.POST.get("tenant")
    tenant = next((tenant for tenant in place.tenants if tenant.slug == wanted), None)
    if tenant is None:
        raise Http404
    request.session[TENANT_SLOT] = tenant.pk
    return redirect("home")


@require_POST
@tenant_page
def change_mode(request: HttpRequest, _place: Place) -> HttpResponseBase:
    mode = request.POST.get("mode")
    if mode not in MODES:
        raise Http404
    request.session[MODE_SLOT] = mode
    return redirect(_next(request))


def _next(request: HttpRequest) -> str:
    """Where it was asked for, or else the part of the site that the person was in."""
    wanted = request.POST.get("next", "")
    if wanted.startswith("/requests/") and url_has_allowed_host_and_scheme(wanted, None):
        return wanted
    section = urlsplit(request.headers.get("referer", "")).path.strip("/").partition("/")[0]
    return f"/{section}" if section in SECTIONS else "/"
