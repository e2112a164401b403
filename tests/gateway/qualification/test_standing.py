"""Who wins and loses a qualification, and what no check may undo."""

from datetime import timedelta

import pytest
from django.utils import timezone

from gateway.models import Model, Vendor, VendorCheck
from gateway.qualification import standing
from gateway.qualification.checks import CHECKS, Check, Subject
from gateway.qualification.findings import PASSED, Evidence, failed, undecided
from gateway.qualification.gate import state_of, takes_live_traffic
from gateway.qualification.run import Outcome, Result
from keys.models import AuditEvent
from tests.gateway.qualification.conftest import made_vendor

pytestmark = pytest.mark.django_db

URL = "http://127.0.0.1:1/v1"
FINDINGS = {"p": PASSED, "f": failed("no"), "u": undecided("away")}


def outcome(how: str, model: str = "small", base_url: str = URL) -> Outcome:
    result = Result(Check("a-check", True, CHECKS[0].make), Evidence(FINDINGS[how], None))
    now = timezone.now()
    return Outcome(Subject(model), base_url, (result,), now, now, 100, "")


def after(vendor: Vendor, history: str, **fields) -> str:
    """The vendor's state after checks that (p)assed, (f)ailed or were (u)ndecided."""
    for how in history:
        standing.keep(vendor, outcome(how, **fields), {"how": how})
    vendor.refresh_from_db()
    return str(state_of(vendor))


def trail() -> list[tuple[str, str, str, str]]:
    return list(
        AuditEvent.objects.order_by("id").values_list("action", "subject", "actor", "reason")
    )


@pytest.mark.parametrize(
    ("history", "state"),
    [
        ("", "unqualified"),
        ("u", "unqualified"),
        ("p", "qualified"),  # the first pass is enough
        ("up", "qualified"),
        ("f", "unqualified"),
        ("fp", "unqualified"),  # after a failure it takes two in a row
        ("fpp", "qualified"),
        ("fpup", "qualified"),  # undecided is nothing
        ("fpfp", "unqualified"),
        ("pf", "qualified"),
        ("pff", "qualified"),
        ("pffu", "qualified"),
        ("pfff", "unqualified"),  # three in a row lose it
        ("pffuf", "unqualified"),
        ("pffpff", "qualified"),
        ("pfffp", "unqualified"),
        ("pfffpp", "qualified"),
        ("puuuuuu", "qualified"),  # a vendor that is away loses nothing
    ],
)
def test_hysteresis(history, state):
    assert after(made_vendor(URL, "small"), history) == state


def test_every_model_must_pass_and_any_can_lose():
    vendor = made_vendor(URL, "small", "large")
    assert after(vendor, "p", model="small") == "unqualified"
    assert after(vendor, "p", model="other") == "unqualified"  # no route names it
    assert after(vendor, "p", model="large") == "qualified"
    assert after(vendor, "fff", model="other") == "qualified"
    assert after(vendor, "ff", model="small") == "qualified"
    assert after(vendor, "f", model="large") == "qualified"
    assert after(vendor, "f", model="small") == "unqualified"
    assert after(vendor, "pp", model="small") == "unqualified"  # the other one has failed as well
    assert after(vendor, "pp", model="large") == "qualified"


def test_models_that_no_client_can_reach_are_not_asked_for():
    vendor = made_vendor(URL, "small", "large")
    Model.objects.filter(name="acme-large").update(is_active=False)
    assert [subject.model for subject in standing.subjects_of(vendor)] == ["small"]
    assert after(vendor, "p", model="small") == "qualified"


def test_a_vendor_without_routes_qualifies_by_what_was_checked():
    assert after(made_vendor(URL), "p") == "qualified"


def test_a_check_at_another_address_decides_nothing():
    vendor = made_vendor(URL, "small")
    assert after(vendor, "p", base_url="http://127.0.0.1:2/v1") == "unqualified"
    assert after(vendor, "p") == "qualified"
    assert after(vendor, "fff", base_url="http://127.0.0.1:2/v1") == "qualified"
    assert VendorCheck.objects.count() == 5


def test_a_vendor_that_moves_must_pass_again():
    vendor = made_vendor(URL, "small")
    after(vendor, "p")
    Vendor.objects.update(base_url="http://127.0.0.1:2/v1")
    vendor.refresh_from_db()
    assert state_of(vendor) == "unqualified"
    assert standing.latest_checks(vendor) == []
    assert after(vendor, "p", base_url="http://127.0.0.1:2/v1") == "qualified"


def test_a_vendor_that_moves_back_keeps_what_it_had():
    vendor = made_vendor(URL, "small")
    after(vendor, "p")
    Vendor.objects.update(base_url="http://127.0.0.1:2/v1")
    Vendor.objects.update(base_url=URL)
    vendor.refresh_from_db()
    assert state_of(vendor) == "qualified"


def test_both_ways_are_in_the_trail():
    after(made_vendor(URL, "small"), "pfffpp")
    assert [entry[:3] for entry in trail()] == [
        ("vendor:qualified", "acme", "check_vendor"),
        ("vendor:unqualified", "acme", "check_vendor"),
        ("vendor:qualified", "acme", "check_vendor"),
    ]


def test_what_is_kept_of_a_run():
    vendor = made_vendor(URL, "small")
    check = standing.keep(vendor, outcome("p"), {"key": "small"})
    assert (check.vendor, check.vendor_model, check.base_url) == (vendor, "small", URL)
    assert (check.passed, check.spent_tokens, check.report) == (True, 100, {"key": "small"})
    assert str(check) == f"{vendor.pk} small passed"
    standing.keep(vendor, outcome("f", "large"), {})
    newest = standing.keep(vendor, outcome("u"), {})
    found = standing.latest_checks(vendor)
    assert [(one.vendor_model, one.passed) for one in found] == [("large", False), ("small", None)]
    assert found[1] == newest


def test_old_checks_are_forgotten(monkeypatch):
    monkeypatch.setattr(standing, "KEPT_CHECKS", 3)
    vendor = made_vendor(URL, "small")
    after(vendor, "pppp")
    after(vendor, "pp", model="large")
    assert VendorCheck.objects.filter(vendor_model="small").count() == 3
    assert VendorCheck.objects.filter(vendor_model="large").count() == 2


class TestPeople:
    def test_a_manual_disable_is_never_undone_by_a_check(self):
        vendor = made_vendor(URL, "small")
        standing.disable(vendor, actor="dora", reason="its bill was wrong.")
        assert after(vendor, "fpppp") == "disabled"
        assert not takes_live_traffic(vendor)
        assert vendor.disabled_reason == "its bill was wrong"
        standing.enable(vendor, actor="dora", reason="corrected")
        vendor.refresh_from_db()
        assert state_of(vendor) == "qualified"  # what it won meanwhile
        assert trail()[0] == ("vendor:disabled", "acme", "dora", "its bill was wrong")
        assert trail()[-1] == ("vendor:enabled", "acme", "dora", "corrected")

    def test_an_override_lets_in_until_it_is_withdrawn(self):
        vendor = made_vendor(URL, "small")
        standing.override(vendor, actor="dora", reason="a trial for Acme")
        assert after(vendor, "fff") == "unqualified"
        assert takes_live_traffic(vendor)
        standing.withdraw_override(vendor, actor="dora", reason="over")
        vendor.refresh_from_db()
        assert not takes_live_traffic(vendor)
        assert trail() == [
            ("vendor:overridden", "acme", "dora", "a trial for Acme"),
            ("vendor:override-withdrawn", "acme", "dora", "over"),
        ]

    def test_disabling_again_keeps_when_it_began(self):
        vendor = made_vendor(URL, "small")
        standing.disable(vendor, actor="dora", reason="first")
        began = Vendor.objects.get().disabled_at
        standing.disable(vendor, actor="dora", reason="second")
        vendor.refresh_from_db()
        assert (vendor.disabled_at, vendor.disabled_reason) == (began, "second")
        assert timezone.now() - began < timedelta(minutes=1)

    def test_what_is_so_already_leaves_no_trail(self):
        vendor = made_vendor(URL, "small")
        standing.enable(vendor, actor="dora", reason="why not")
        standing.withdraw_override(vendor, actor="dora", reason="why not")
        assert trail() == []

    @pytest.mark.parametrize("reason", ["", "  \n ", "x" * 501, "a\x07b", "."])
    @pytest.mark.parametrize(
        "act",
        [
            *(standing.disable, standing.enable),
            *(standing.override, standing.withdraw_override),
        ],
    )
    def test_without_a_reason_nothing_happens(self, act, reason):
        vendor = made_vendor(URL, "small", override_reason="kept")
        with pytest.raises(standing.BadReasonError):
            act(vendor, actor="dora", reason=reason)
        vendor.refresh_from_db()
        assert (vendor.disabled_at, vendor.override_reason) == (None, "kept")
        assert trail() == []
