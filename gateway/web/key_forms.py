"""What a person says about a new key."""

import secrets
from collections.abc import Sequence
from datetime import datetime

from django import forms

from gateway.models import Model
from gateway.web.periods import midnight
from keys.services import NAME_LENGTH_MAX, KeyLimits

ALL = "all"
CHOSEN = "chosen"
SCOPES = (
    (ALL, "All models, also those that come later"),
    (CHOSEN, "Only the ones ticked below"),
)
LIMIT_MAX = 1_000_000
RANGES_MAX = 50
ONCE_BYTES = 16
ONE_OR_MORE = "Enter 1 or more. Leave it empty for no limit."


class KeyForm(forms.Form):
    """`once` names this opening of the form, so that sending it twice makes one key."""

    use_required_attribute = False
    once = forms.CharField(required=False, widget=forms.HiddenInput)
    name = forms.CharField(
        max_length=NAME_LENGTH_MAX,
        help_text="Shown on requests and charges. It says who uses the key, or what for.",
        error_messages={"required": "Enter a name: who uses the key, or what for."},
    )
    scope = forms.ChoiceField(label="Models", choices=SCOPES, initial=ALL, widget=forms.RadioSelect)
    models = forms.MultipleChoiceField(
        label="Which models", required=False, widget=forms.CheckboxSelectMultiple
    )
    allowed_ips = forms.CharField(
        label="IP addresses or ranges",
        required=False,
        widget=forms.Textarea({"rows": 2, "spellcheck": "false"}),
        help_text="One a line, for example 198.51.100.0/24. Leave it empty for any.",
    )
    requests_per_minute = forms.IntegerField(
        label="Requests a minute",
        required=False,
        min_value=1,
        max_value=LIMIT_MAX,
        help_text="Leave it empty for no limit.",
        error_messages={"min_value": ONE_OR_MORE, "invalid": ONE_OR_MORE},
    )
    concurrent_requests = forms.IntegerField(
        label="Requests at once",
        required=False,
        min_value=1,
        max_value=LIMIT_MAX,
        help_text="Leave it empty for no limit.",
        error_messages={"min_value": ONE_OR_MORE, "invalid": ONE_OR_MORE},
    )
    expires_on = forms.DateField(
        label="Expires on, at 00:00 UTC",
        required=False,
        widget=forms.DateInput({"type": "date"}),
        help_text="Leave it empty for never.",
    )

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        names = Model.objects.filter(is_active=True).order_by("name")
        field = self.fields["models"]
        assert isinstance(field, forms.MultipleChoiceField)  # noqa: S101  # for the type checker
        field.choices = [(name, name) for name in names.values_list("name", flat=True)]
        self.fields["once"].initial = secrets.token_hex(ONCE_BYTES)

    def clean_models(self) -> list[str]:
        chosen: list[str] = self.cleaned_data["models"]
        if self.cleaned_data.get("scope") == CHOSEN and not chosen:
            raise forms.ValidationError("Tick at least one model, or choose all models.")
        return chosen if self.cleaned_data.get("scope") == CHOSEN else []

    def clean_allowed_ips(self) -> list[str]:
        ranges = self.cleaned_data["allowed_ips"].replace(",", " ").split()
        if len(ranges) > RANGES_MAX:
            raise forms.ValidationError(f"Enter at most {RANGES_MAX} ranges.")
        return list(dict.fromkeys(ranges))

    def limits(self) -> KeyLimits:
        """Of a valid form."""
        said = self.cleaned_data
        return KeyLimits(
            allowed_models=said["models"] or None,
            allowed_ips=said["allowed_ips"] or None,
            requests_per_minute=said["requests_per_minute"],
            concurrent_requests=said["concurrent_requests"],
            expires_at=self._expires_at(),
        )

    def refuse(self, field: str, message: str) -> None:
        """Say at the right field what the service refused."""
        named = {"expires_at": "expires_on"}.get(field, field)
        self.add_error(named if named in self.fields else None, message)

    def _expires_at(self) -> datetime | None:
        day = self.cleaned_data["expires_on"]
        return None if day is None else midnight(day)


def rules_of(
    models: Sequence[str] | None,
    ranges: Sequence[str] | None,
    requests_per_minute: int | None,
    concurrent_requests: int | None,
) -> list[str]:
    """What a key may do, in short sentences."""
    said = [f"Models: {', '.join(models)}" if models else "All models"]
    if ranges:
        said.append(f"From {', '.join(ranges)}")
    limits = limit_words(requests_per_minute, concurrent_requests)
    if limits:
        said.append(f"At most {', '.join(limits)}")
    return said


def limit_words(requests_per_minute: int | None, concurrent_requests: int | None) -> list[str]:
    """Empty where there is no limit."""
    parts = []
    if requests_per_minute is not None:
        parts.append(f"{requests_per_minute:,} a minute")
    if concurrent_requests is not None:
        parts.append(f"{concurrent_requests:,} at once")
    return parts
