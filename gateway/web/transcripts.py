"""What the organisation lets us keep of what was said: a visible choice with a visible end."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from gateway.web.place import Place, tenant_page
from keys.models import MAY_SET_TRANSCRIPTS, TranscriptPolicy, User
from keys.transcripts import DAYS_MAX, DAYS_MIN, set_transcripts

POLICIES = (
    (TranscriptPolicy.CONTENT, "Content: what was asked and what was answered, secrets masked"),
    (TranscriptPolicy.SUMMARIES, "Summaries: the first 150 characters of each side, and no more"),
    (TranscriptPolicy.NOTHING, "Nothing: times, tokens and the charge only"),
)
DAYS = f"Enter {DAYS_MIN} to {DAYS_MAX} days."


class TranscriptForm(forms.Form):
    use_required_attribute = False
    policy = forms.ChoiceField(label="Keep", choices=POLICIES, widget=forms.RadioSelect)
    days = forms.IntegerField(
        label="For how many days",
        min_value=DAYS_MIN,
        max_value=DAYS_MAX,
        help_text="Counted from each request. Then it is removed, and cannot be brought back.",
        error_messages=dict.fromkeys(("required", "invalid", "min_value", "max_value"), DAYS),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def index(request: HttpRequest, place: Place) -> HttpResponseBase:
    may_set = place.member.role in MAY_SET_TRANSCRIPTS
    if request.method == "POST":
        return _set(request, place, may_set=may_set)
    tenant = place.tenant
    form = TranscriptForm({"policy": tenant.transcript_policy, "days": tenant.transcript_days})
    return _page(request, form, may_set=may_set)


def _set(request: HttpRequest, place: Place, *, may_set: bool) -> HttpResponseBase:
    if not may_set or not isinstance(request.user, User):
        raise PermissionDenied
    form = TranscriptForm(request.POST)
    if not form.is_valid():
        return _page(request, form, may_set=True, status=422)
    said: dict[str, Any] = form.cleaned_data
    set_transcripts(place.tenant, said["policy"], said["days"], actor=request.user.email)
    messages.success(request, "Saved. It is true of requests from now on.")
    return redirect("transcripts")


def _page(
    request: HttpRequest, form: TranscriptForm, *, may_set: bool, status: int = 200
) -> HttpResponseBase:
    context = {"form": form, "may_set": may_set}
    return render(request, "tenant/transcripts.html", context, status=status)
