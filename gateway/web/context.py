"""What the frame around every page shows, asked for only by the templates that show it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from billing.invoices.selectors import in_state
from billing.models import (
    Account,
    AccountKind,
    CorrectionState,
    CountCorrection,
    Exchange,
    InvoiceState,
    Message,
)
from billing.plans import assigned_at
from gateway.exchanges.selectors import first_id_at
from gateway.web.place import LIVE, Place, place_of
from keys.models import Tenant, User

HEALTH_REQUESTS = 100
HEALTH_MINUTES = 15
UPSTREAM_ERRORS = "upstream_"


@dataclass(frozen=True, slots=True)
class NavItem:
    name: str
    label: str
    icon: str
    url: str
    count: Callable[[], int] | int = 0


@dataclass(frozen=True, slots=True)
class Health:
    state: str
    text: str


def frame(request: HttpRequest) -> dict[str, Any]:
    """A context processor. Callables are called by the template, each at most once."""
    user = getattr(request, "user", None)
    if not isinstance(user, User):
        return {}
    place = place_of(request)
    common = {"now": timezone.now(), "nav_current": _current(request)}
    if place is None:
        return {**common, "mode": "staff" if user.is_staff else LIVE, "nav": _staff_nav(user)}
    return {**common, **_tenant_frame(place, user)}


def _tenant_frame(place: Place, user: User) -> dict[str, Any]:
    return {
        "place": place,
        "tenant": place.tenant,
        "tenants": place.tenants,
        "member": place.member,
        "plan_name": cache(lambda: plan_name(place.tenant)),
        "tenant_switch_url": reverse("tenant"),
        "mode": place.mode,
        "mode_switch_url": reverse("mode"),
        # A test page shows no live money.
        "available_nanos": None if place.is_test else cache(lambda: available_nanos(place.tenant)),
        "currency": place.tenant.currency,
        "nav": [*_tenant_nav(place), *_staff_nav(user)],
        "health": cache(lambda: health(place)),
    }


def available_nanos(tenant: Tenant) -> int | None:
    """Of the wallet and of credit that has not expired; None before the wallet is opened."""
    spendable = Account.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=timezone.now()),
        tenant=tenant,
        kind__in=(AccountKind.WALLET, AccountKind.CREDIT),
        currency=tenant.currency,
    )
    accounts = list(spendable)
    return sum(account.available_nanos for account in accounts) if accounts else None


def plan_name(tenant: Tenant) -> str:
    """Empty where the tenant is on no plan."""
    assigned = assigned_at(tenant.pk, timezone.now())
    return "" if assigned is None or assigned.plan is None else assigned.plan.name


def unread_count(place: Place) -> int:
    return Message.objects.filter(
        tenant=place.tenant, is_test=place.is_test, archived_at=None, read_at=None
    ).count()


def health(place: Place) -> Health | None:
    """What the tenant's own last requests say of the vendors; None where there were none."""
    since = first_id_at(timezone.now() - timedelta(minutes=HEALTH_MINUTES))
    last = Exchange.objects.filter(
        tenant_id=place.tenant.pk, id__gte=since, is_test=place.is_test
    ).order_by("-id")[:HEALTH_REQUESTS]
    codes = list(last.values_list("error_code", flat=True))
    if not codes:
        return None
    failed = sum(code is not None and code.startswith(UPSTREAM_ERRORS) for code in codes)
    if not failed:
        return Health("active", "Vendors answer")
    return Health("flagged", f"Vendors failed {failed} of {len(codes)}")


def _tenant_nav(place: Place) -> list[NavItem]:
    invoices = NavItem("invoices", "Invoices", "receipt", reverse("invoices"))
    return [
        NavItem("keys", "Keys", "key", reverse("keys")),
        NavItem("requests", "Requests", "list", reverse("requests")),
        NavItem(
            "messages",
            "Messages",
            "message",
            reverse("messages"),
            cache(lambda: unread_count(place)),
        ),
        *([invoices] if place.may_see_invoices else []),
        NavItem("transcripts", "Transcripts", "lock", reverse("transcripts")),
    ]


def _staff_nav(user: User) -> list[NavItem]:
    if not user.is_staff:
        return []
    waiting = cache(in_state(InvoiceState.REVIEW).count)
    proposed = cache(CountCorrection.objects.filter(state=CorrectionState.PROPOSED).count)
    return [
        NavItem("staff", "Operator", "scale", reverse("staff")),
        NavItem("vendors", "Vendors", "server", reverse("vendors")),
        NavItem("review", "Invoices review", "receipt", reverse("review"), waiting),
        NavItem("counting", "Counting", "percent", reverse("counting"), proposed),
    ]


def _current(request: HttpRequest) -> str:
    """The part of the site: url names begin with it, `keys-revoke` and the like."""
    match = request.resolver_match
    return (match.url_name or "").partition("-")[0] if match is not None else ""
