import pytest
from django.core.management import CommandError, call_command

from gateway.models import Qualification
from keys.models import AuditEvent
from tests.gateway.qualification.conftest import made_vendor

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:1/v1"


def said(capsys, *words: str) -> list[str]:
    call_command("vendor", *words)
    return capsys.readouterr().out.splitlines()


def test_list_says_who_is_let_in_and_why(capsys):
    made_vendor(URL, name="strict")
    made_vendor(URL, name="plain", qualification=Qualification.WAIVED)
    made_vendor(URL, name="gone", is_active=False)
    assert said(capsys, "list") == [
        "plain: unqualified, live. Not qualified; need not be: applied by catalog file.",
        "strict: unqualified, no live traffic. Not qualified.",
    ]


def test_every_act_has_a_reason_that_is_kept(capsys):
    made_vendor(URL)
    acts = ("override", "disable", "enable", "withdraw")
    lines = [said(capsys, act, "acme", "--reason", f"to {act}") for act in acts]
    assert lines == [
        ["acme: unqualified, live. Not qualified; let in: to override."],
        ["acme: disabled, no live traffic. Disabled: to disable."],
        ["acme: unqualified, live. Not qualified; let in: to override."],
        ["acme: unqualified, no live traffic. Not qualified."],
    ]
    trail = AuditEvent.objects.order_by("id").values_list("action", "actor", "reason")
    assert list(trail) == [
        ("vendor:overridden", "manage.py vendor", "to override"),
        ("vendor:disabled", "manage.py vendor", "to disable"),
        ("vendor:enabled", "manage.py vendor", "to enable"),
        ("vendor:override-withdrawn", "manage.py vendor", "to withdraw"),
    ]


def test_without_a_reason_or_a_vendor_nothing_happens():
    made_vendor(URL)
    with pytest.raises(CommandError, match="--reason"):
        call_command("vendor", "disable", "acme")
    with pytest.raises(CommandError, match="Give a reason of 1 to 500 characters"):
        call_command("vendor", "disable", "acme", "--reason", " ")
    with pytest.raises(CommandError, match="There is no vendor 'nobody'"):
        call_command("vendor", "disable", "nobody", "--reason", "why")
    assert not AuditEvent.objects.exists()
