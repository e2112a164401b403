"""What a tenant was told: one line a kind, however many requests it is about."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from billing.ids import request_id
from billing.models import Message, MessageCategory
from gateway.web.periods import CUSTOM
from gateway.web.place import Place, tenant_page

ARCHIVED = "archived"
MESSAGES_MAX = 200
SETTLED_LATER = timedelta(hours=1)
"""A request may have begun so long before its message."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a category is drawn: a state of the design system, its word, and what it counts."""

    state: str
    word: str
    one: str
    many: str


LOOKS = {
    MessageCategory.ESTIMATE: Look(
        "at_estimate", "Estimate", "request billed at estimate", "requests billed at estimate"
    ),
    MessageCategory.SHORTFALL: Look(
        "flagged",
        "Shortfall",
        "request cost more than the balance carried",
        "requests cost more than the balance carried",
    ),
    MessageCategory.LIMIT: Look("flagged", "Spend", "spend limit neared", "spend limits neared"),
    MessageCategory.CORRECTION: Look(
        "flagged", "Correction", "charge corrected later", "charges corrected later"
    ),
}


@dataclass(frozen=True, slots=True)
class MessageLine:
    message: Message

    @property
    def look(self) -> Look:
        return LOOKS[MessageCategory(self.message.category)]

    @property
    def title(self) -> str:
        words = self.look.one if self.message.count == 1 else self.look.many
        return f"{self.message.count:,} {words}"

    @property
    def is_unread(self) -> bool:
        return self.message.read_at is None

    @property
    def requests_url(self) -> str:
        """The requests that it is about, by the days in which they can have begun."""
        asked = {
            "period": CUSTOM,
            "since": (self.message.first_at - SETTLED_LATER).date().isoformat(),
            "until": self.message.last_at.date().isoformat(),
        }
        if self.message.category == MessageCategory.ESTIMATE:
            asked["estimates"] = "1"
        return f"{reverse('requests')}?{urlencode(asked)}"

    @property
    def last_request_id(self) -> str | None:
        last = self.message.last_exchange_id
        return None if last is None else request_id(last)


@require_safe
@tenant_page
def index(request: HttpRequest, place: Place) -> HttpResponseBase:
    is_archived = request.GET.get("show") == ARCHIVED
    mine = _of(place)
    shown = mine.filter(archived_at__isnull=not is_archived).order_by("-last_at", "-pk")
    context = {
        "lines": list(_lines(shown[:MESSAGES_MAX])),
        "is_archived": is_archived,
        "open_count": mine.filter(archived_at=None).count(),
        "archived_count": mine.exclude(archived_at=None).count(),
        "as_of": timezone.now(),
    }
    return render(request, "tenant/messages.html", context)


@require_POST
@tenant_page
def read(_request: HttpRequest, place: Place, message_id: int) -> HttpResponseBase:
    _own(place, message_id).filter(read_at=None).update(read_at=timezone.now())
    return redirect("messages")


@require_POST
@tenant_page
def archive(_request: HttpRequest, place: Place, message_id: int) -> HttpResponseBase:
    """What is archived has been read."""
    now = timezone.now()
    mine = _own(place, message_id)
    mine.filter(read_at=None).update(read_at=now)
    mine.filter(archived_at=None).update(archived_at=now)
    return redirect("messages")


def _own(place: Place, message_id: int) -> QuerySet[Message]:
    """Raises PermissionDenied for who may only look, Http404 for another tenant's message."""
    if not place.may_handle_messages:
        raise PermissionDenied
    mine = _of(place).filter(pk=message_id)
    if not mine.exists():
        raise Http404
    return mine


def _of(place: Place) -> QuerySet[Message]:
    return Message.objects.filter(tenant=place.tenant, is_test=place.is_test)


def _lines(shown: QuerySet[Message]) -> Iterator[MessageLine]:
    return (MessageLine(message) for message in shown)
