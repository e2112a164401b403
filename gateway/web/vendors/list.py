"""The operator's list of vendors, a card each."""

from urllib.parse import urlencode

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from billing.paging import page_of
from gateway.exchanges.vendor_health import HEALTH_EXCHANGES, HEALTH_PERIOD
from gateway.models import Vendor
from gateway.web.operator import render_staff, staff_page
from gateway.web.pager import pager_of
from gateway.web.vendors.cards import cards_of

VENDORS = 10
CARD_MODELS = 8
KEY_DIGITS_MAX = 18


@require_safe
@staff_page
def index(request: HttpRequest) -> HttpResponseBase:
    """Those in the catalog; and on asking, those that no file names any more."""
    shows_gone = request.GET.get("show") == "gone"
    found = Vendor.objects.filter(is_active=not shows_gone)
    older_than = key_of(request.GET.get("older", ""))
    page = page_of(found, "pk", older_than=older_than, limit=VENDORS)
    now = timezone.now()

    def url(cursor: int | None) -> str:
        asked = {"show": "gone"} if shows_gone else {}
        asked |= {} if cursor is None else {"older": str(cursor)}
        return f"{reverse('vendors')}?{urlencode(asked)}"

    counts = Vendor.objects.aggregate(
        active=Count("pk", filter=Q(is_active=True)), gone=Count("pk", filter=Q(is_active=False))
    )
    count = counts["gone" if shows_gone else "active"]
    context = {
        "cards": cards_of(page.rows, now),
        "card_models": CARD_MODELS,
        "shows_gone": shows_gone,
        "counts": counts,
        "listed": f"Newest first, {len(page.rows)} of {count:,}.",
        "pager": pager_of(found, "pk", page, older_than=older_than, limit=VENDORS, url=url),
        "health_hours": HEALTH_PERIOD.seconds // 3_600,
        "health_exchanges": HEALTH_EXCHANGES,
        "as_of": now,
    }
    return render_staff(request, "staff/vendors.html", context)


def key_of(text: str) -> int | None:
    """A row's key as an address names it; None where it names none."""
    is_key = text.isascii() and text.isdigit() and len(text) <= KEY_DIGITS_MAX
    return int(text) if is_key else None
