"""Keys: the list, one key with its history, making one, revoking one."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from gateway.exchanges.selectors import ExchangeFilters
from gateway.exchanges.tallies import count_exchanges
from gateway.web.key_forms import KeyForm, limit_words, rules_of
from gateway.web.periods import MONTH, TODAY, Period, midnight, period_of
from gateway.web.place import Place, keys_act, tenant_page
from gateway.web.snippets import ANY_MODEL, snippets
from gateway.web.spend import KeySpend, spend_by_key
from keys.errors import BadKeyRequest
from keys.models import ApiKey, AuditEvent, KeyKind, User
from keys.selectors import keys_of
from keys.services import CreatedKey, create_key, revoke_key

REVOKED = "revoked"
MADE_SLOT = "keys_made"
MADE_MAX = 20
ONCE_CHARS = 64
UNPROCESSABLE = 422
HISTORY_EVENTS = 100
LIST_KEYS_MAX = 500


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key as its row shows it. `spend` is of this month, None where it was not used."""

    key: ApiKey
    spend: KeySpend | None
    month: Period
    is_new: bool = False

    @property
    def spent_nanos(self) -> int:
        return 0 if self.spend is None else self.spend.nanos

    @property
    def models(self) -> str:
        allowed = self.key.allowed_models
        if not allowed:
            return "all"
        return allowed[0] if len(allowed) == 1 else f"{len(allowed)} models"

    @property
    def ranges(self) -> str:
        return ", ".join(self.key.allowed_ips or ())

    @property
    def limits(self) -> list[str]:
        return limit_words(self.key.requests_per_minute, self.key.concurrent_requests)

    @property
    def last_used_at(self) -> datetime | None:
        use = getattr(self.key, "use", None)
        moments = [
            None if use is None else use.last_used_at,
            None if self.spend is None else self.spend.last_at,
        ]
        return max((moment for moment in moments if moment is not None), default=None)

    @property
    def unused_words(self) -> str:
        """What stands for a last use that is not known."""
        is_new = self.key.created_at >= self.month.since
        return "never" if is_new else f"not in {self.month.since:%B}"


@require_safe
@tenant_page
def index(request: HttpRequest, place: Place) -> HttpResponseBase:
    return _list_page(request, place, is_revoked=request.GET.get("show") == REVOKED)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
@keys_act
def new(request: HttpRequest, place: Place) -> HttpResponseBase:
    if request.method != "POST":
        return render(request, "tenant/key_new.html", {"form": KeyForm()})
    form = KeyForm(request.POST)
    made = _made_before(request)
    once = form.data.get("once", "")[:ONCE_CHARS]
    if once in made:
        messages.info(request, "This key was made before. Its secret was shown then, once.")
        return redirect("keys-key", made[once])
    created = _create(request, place, form)
    if created is None:
        return render(request, "tenant/key_new.html", {"form": form}, status=UNPROCESSABLE)
    if once:
        made[once] = created.key.public_id
        request.session[MADE_SLOT] = dict(list(made.items())[-MADE_MAX:])
    return _list_page(request, place, is_revoked=False, created=created)


@require_POST
@tenant_page
def stored(_request: HttpRequest, _place: Place) -> HttpResponseBase:
    """Leave the secret: the page that follows cannot show it."""
    return redirect("keys")


@require_safe
@tenant_page
def key(request: HttpRequest, place: Place, public_id: str) -> HttpResponseBase:
    found = _key_of(place, public_id)
    now = timezone.now()
    month = period_of(MONTH, now)
    spend = spend_by_key(place.tenant.pk, month, is_test=place.is_test).get(found.pk)
    history = AuditEvent.objects.filter(tenant_id=place.tenant.pk, subject=found.public_id)
    return render(
        request,
        "tenant/key.html",
        {
            "line": KeyLine(found, spend, month),
            "month": month,
            "today_count": _count_today(place, found),
            "history": history[:HISTORY_EVENTS],
            "as_of": now,
        },
    )


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
@keys_act
def revoke(request: HttpRequest, place: Place, public_id: str) -> HttpResponseBase:
    found = _key_of(place, public_id)
    if found.revoked_at is not None:
        return redirect("keys-key", public_id)
    if request.method != "POST":
        return _revoke_page(request, place, found)
    if request.POST.get("name", "").strip() != found.name:
        return _revoke_page(request, place, found, f"Enter the name exactly: {found.name}")
    revoke_key(place.tenant, public_id, actor=_actor(request))
    return redirect("keys-key", public_id)


def _list_page(
    request: HttpRequest, place: Place, *, is_revoked: bool, created: CreatedKey | None = None
) -> HttpResponseBase:
    now = timezone.now()
    month = period_of(MONTH, now)
    spend = spend_by_key(place.tenant.pk, month, is_test=place.is_test)
    shown = keys_of(place.tenant, place.key_kinds, is_revoked=is_revoked)
    other_count = keys_of(place.tenant, place.key_kinds, is_revoked=not is_revoked).count()
    new_pk = None if created is None else created.key.pk
    lines = [
        KeyLine(found, spend.get(found.pk), month, is_new=found.pk == new_pk)
        for found in shown[:LIST_KEYS_MAX]
    ]
    shown_count = shown.count()
    total_nanos = sum(of_key.nanos for of_key in spend.values())
    context = {
        "lines": lines,
        "is_revoked": is_revoked,
        "shown_count": shown_count,
        "has_more": shown_count > len(lines),
        "other_count": other_count,
        "other_nanos": total_nanos - sum(line.spent_nanos for line in lines),
        "total_nanos": total_nanos,
        "month": month,
        "midnight": midnight(now.date()),
        "as_of": now,
        "reveal": None if created is None else _reveal(request, created),
    }
    return render(request, "tenant/keys.html", context)


def _create(request: HttpRequest, place: Place, form: KeyForm) -> CreatedKey | None:
    """None where the form, or the service, refuses; the form says why."""
    if not form.is_valid():
        return None
    try:
        return create_key(
            place.tenant,
            form.cleaned_data["name"],
            actor=_actor(request),
            kind=KeyKind.TEST if place.is_test else KeyKind.LIVE,
            limits=form.limits(),
            created_by=_person(request),
        )
    except BadKeyRequest as refusal:
        form.refuse(refusal.field, str(refusal))
        return None


def _reveal(request: HttpRequest, created: CreatedKey) -> dict[str, object]:
    """What the panel shows, in this one answer only."""
    made = created.key
    model = made.allowed_models[0] if made.allowed_models else ANY_MODEL
    code = snippets(request.build_absolute_uri("/v1"), model, created.secret)
    return {
        "title": f"Key {made.name} is created. This is the only time you see its secret.",
        "secret": created.secret,
        "rules": [
            *rules_of(
                made.allowed_models,
                made.allowed_ips,
                made.requests_per_minute,
                made.concurrent_requests,
            ),
            _expiry_words(made.expires_at),
        ],
        "code": code,
        "done_url": reverse("keys-stored"),
    }


def _expiry_words(expires_at: datetime | None) -> str:
    if expires_at is None:
        return "Never expires"
    return f"Expires {expires_at.day} {expires_at:%B %Y}, 00:00 UTC"


def _revoke_page(
    request: HttpRequest, place: Place, found: ApiKey, error: str = ""
) -> HttpResponseBase:
    count = _count_today(place, found)
    requests = "1 request" if count == 1 else f"{count:,} requests"
    consequence = format_html(
        "From the next second every request with <code>{}</code> gets 401. It made {} today. "
        "This cannot be undone; open requests finish and are charged.",
        found.masked,
        requests if count else "no request",
    )
    context = {"key": found, "consequence": consequence, "error": error}
    status = UNPROCESSABLE if error else None
    return render(request, "tenant/key_revoke.html", context, status=status)


def _key_of(place: Place, public_id: str) -> ApiKey:
    """Raises Http404 for another tenant's key, and for one of the other mode."""
    found = (
        ApiKey.objects.filter(tenant=place.tenant, kind__in=place.key_kinds, public_id=public_id)
        .select_related("use", "created_by")
        .first()
    )
    if found is None:
        raise Http404
    return found


def _count_today(place: Place, found: ApiKey) -> int:
    today: Period = period_of(TODAY, timezone.now())
    filters = ExchangeFilters(
        is_test=place.is_test,
        key_public_id=found.public_id,
        since=today.since,
        until=today.until,
    )
    return count_exchanges(place.tenant.pk, filters).total


def _made_before(request: HttpRequest) -> dict[str, str]:
    """Which keys this session has made, by the opening of the form that made them."""
    return dict(request.session.get(MADE_SLOT, {}))


def _person(request: HttpRequest) -> User | None:
    return request.user if isinstance(request.user, User) else None


def _actor(request: HttpRequest) -> str:
    person = _person(request)
    return "" if person is None else person.email
