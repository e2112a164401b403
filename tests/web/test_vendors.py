"""Vendors: who takes live traffic and why, reports with their evidence, acts, and checks."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from billing.models import GatewayProcess
from gateway.models import CheckJob, Qualification, Route, Vendor, VendorCheck
from gateway.qualification import cost
from gateway.tasks import check_vendor
from gateway.web.vendors import detail
from gateway.web.vendors import list as listed
from keys.models import AuditEvent
from tests.gateway.qualification.conftest import Clever, made_vendor, served
from tests.web.conftest import BACKEND, NOW, confirmed, page_of, signed_in, text_of

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:1/v1"
SECRET = "vk-very-secret-credential"
HOSTILE = "<script>alert('came back')</script>"
DECIDED = ("disabled_at", "disabled_reason", "override_reason", "qualified_base_url")


def report(passed: bool | None = True, **entry: Any) -> dict[str, Any]:
    usual = {
        "id": "arithmetic",
        "passed": passed,
        "request": {"model": "small", "messages": "Compute 2+2."},
        "response": {"text": HOSTILE},
    }
    return {"scope": "One authored check.", "runtime": "llama.cpp", "checks": [{**usual, **entry}]}


def checked(vendor: Vendor, model: str = "small", *, passed: bool | None = True, **more: Any):
    at = more.pop("at", NOW - timedelta(minutes=2))
    fields = {"base_url": vendor.base_url, "report": report(passed), "spent_tokens": 4_012}
    return VendorCheck.objects.create(
        vendor=vendor,
        vendor_model=model,
        started_at=at - timedelta(milliseconds=703),
        finished_at=at,
        passed=passed,
        **{**fields, **more},
    )


def decided(vendor: Vendor) -> tuple[Any, ...]:
    vendor.refresh_from_db()
    return tuple(getattr(vendor, name) for name in DECIDED)


@pytest.fixture
def vendor(acme) -> Vendor:
    return made_vendor(URL, "small", credential=SECRET)


# --- who may see it -----------------------------------------------------------------------------


def test_only_staff_may_see_or_act(acme, vendor) -> None:
    check = checked(vendor)
    paths = ("", "/acme", f"/acme/checks/{check.pk}", "/acme/disable")
    before = decided(vendor)
    for path in paths:
        assert signed_in(acme.alice).get(f"/staff/vendors{path}").status_code == 403
        assert "/accounts/login/" in Client().get(f"/staff/vendors{path}").headers["location"]
        assert signed_in(acme.dora).get(f"/staff/vendors{path}").status_code == 200
    owner = confirmed(acme.alice)
    assert owner.post("/staff/vendors/acme/disable", {"reason": "no"}).status_code == 403
    assert owner.post("/staff/vendors/acme/check", {"model": "small"}).status_code == 403
    assert decided(vendor) == before
    assert not CheckJob.objects.exists()


def test_it_is_in_the_operators_navigation(acme) -> None:
    assert 'href="/staff/vendors" aria-current="page"' in page_of(
        signed_in(acme.dora).get("/staff/vendors")
    )
    assert "/staff/vendors" not in page_of(signed_in(acme.alice).get("/keys"))


def test_the_credential_is_on_no_page(acme, vendor) -> None:
    checked(vendor)
    client = signed_in(acme.dora)
    pages = [client.get(f"/staff/vendors{path}") for path in ("", "/acme", "/acme/disable")]
    assert all(SECRET not in page_of(page) for page in pages)
    assert "Credential set, encrypted" in text_of(pages[1])


@pytest.mark.parametrize(
    ("credential", "words"),
    [("::keyless::", "none wanted"), ("", "none set"), (SECRET, "set, encrypted")],
)
def test_it_says_whether_a_credential_is_set(acme, credential: str, words: str) -> None:
    made_vendor(URL, "small", credential=credential)
    assert f"Credential {words}" in text_of(signed_in(acme.dora).get("/staff/vendors"))


@pytest.mark.parametrize(
    "path", ["/nobody", "/acme/checks/999999", "/acme/burn", "/nobody/disable"]
)
def test_what_there_is_not_is_not_found(acme, vendor, path: str) -> None:
    assert signed_in(acme.dora).get(f"/staff/vendors{path}").status_code == 404


# --- the list -----------------------------------------------------------------------------------


def test_without_vendors_it_says_where_they_come_from(acme) -> None:
    text = text_of(signed_in(acme.dora).get("/staff/vendors"))
    assert "No vendor yet" in text
    assert "manage.py catalog apply FILE" in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "Not qualified must qualify, and its checks have not passed"),
        ({"qualified_base_url": URL}, "Qualified its checks passed"),
        ({"qualified_base_url": "http://before/v1"}, "Not qualified must qualify, and its checks"),
        ({"override_reason": "a trial"}, "Let in by a person not qualified; a trial"),
        (
            {"qualification": Qualification.WAIVED},
            "Waived need not qualify; applied by catalog file",
        ),
        (
            {"disabled_at": NOW, "disabled_reason": "its bill", "qualified_base_url": URL},
            "Disabled its bill",
        ),
    ],
)
def test_each_card_says_who_takes_live_traffic_and_why(acme, fields, words: str) -> None:
    made_vendor(URL, "small", **fields)
    text = text_of(signed_in(acme.dora).get("/staff/vendors"))
    assert f"acme {words} " in text
    is_live = not words.startswith(("Not", "Disabled"))
    assert f"Live traffic {'yes' if is_live else 'no'}" in text


def test_a_card_has_each_model_with_its_last_check(acme, vendor) -> None:
    for model in ("large", "medium"):
        Route.objects.create(vendor=vendor, model=Route.objects.first().model, vendor_model=model)
    checked(vendor, "small", passed=False, at=NOW - timedelta(hours=1))
    checked(vendor, "small")
    checked(vendor, "large", passed=None)
    text = text_of(signed_in(acme.dora).get("/staff/vendors"))
    assert "large acme-small Undecided 2026-12-15 14:18" in text
    assert "medium acme-small Not checked –" in text
    assert "small acme-small Passed 2026-12-15 14:18" in text
    assert "Tokens of checks, 24 h 12,036 of 100,000" in text


def test_a_card_has_the_health_of_its_calls(acme, vendor) -> None:
    attempt = {"n": 1, "vendor": "acme", "started_ms": 2}
    acme.relayed().hold().settle(attempts=[{**attempt, "status": 503}])
    acme.relayed().hold().settle(attempts=[{**attempt, "status": 200, "first_byte_ms": 42}])
    text = text_of(signed_in(acme.dora).get("/staff/vendors"))
    assert "Failed calls, 3 h 1 of 2 First byte, median 40 ms" in text


def test_a_card_has_the_breakers_of_living_gateways(acme, vendor) -> None:
    def gateway(*troubles: dict[str, Any], **fields: Any) -> None:
        GatewayProcess.objects.create(name="g", seen_at=NOW, troubles=list(troubles), **fields)

    def trouble(**fields: Any) -> dict[str, Any]:
        usual = {"vendor_id": vendor.pk, "model": "", "state": "open", "left_s": 8}
        return {**usual, **fields}

    def breaker() -> str:
        text = text_of(signed_in(acme.dora).get("/staff/vendors"))
        return text.partition("Breaker ")[2].partition(" Credential")[0]

    assert breaker() == "closed"
    gateway()
    gateway(trouble(vendor_id=vendor.pk + 1))
    assert breaker() == "closed"
    gateway(trouble(), trouble(model="small", state="resting", left_s=30))
    gateway(trouble(left_s=3))
    gateway(trouble(), stopped_at=NOW)
    gone = GatewayProcess.objects.create(name="dead", troubles=[trouble()])
    GatewayProcess.objects.filter(pk=gone.pk).update(seen_at=NOW - timedelta(minutes=1))
    assert breaker() == (
        "open at 2 of 4 gateways, tried again in 3 s; small resting, as the vendor asked"
        " at 1 of 4 gateways, tried again in 30 s"
    )


def test_vendors_that_left_the_catalog_are_on_a_list_of_their_own(acme, vendor) -> None:
    Vendor.objects.update(is_active=False)
    client = signed_in(acme.dora)
    assert "No vendor yet" in text_of(client.get("/staff/vendors"))
    assert "acme Not in the catalog" in text_of(client.get("/staff/vendors?show=gone"))
    page = client.get("/staff/vendors/acme")
    assert "Not in the catalog any more" in text_of(page)
    assert "Check now" not in text_of(page)
    assert "/acme/disable" not in page_of(page)


def test_the_list_is_paged(acme, monkeypatch) -> None:
    monkeypatch.setattr(listed, "VENDORS", 2)
    for name in ("first", "second", "third"):
        made_vendor(URL, name=name)
    client = signed_in(acme.dora)
    newest = client.get("/staff/vendors")
    assert "Newest first, 2 of 3." in text_of(newest)
    older = re.search(r'href="([^"]+)" rel="next"', page_of(newest)).group(1)
    page = client.get(older)
    assert ("first" in text_of(page), "second" in text_of(page)) == (True, False)
    assert 'rel="prev"' in page_of(page)
    assert "Nothing older" in text_of(client.get("/staff/vendors?older=1"))


# --- one vendor ---------------------------------------------------------------------------------


def test_a_report_is_a_checklist_with_its_evidence(acme, vendor) -> None:
    checked(
        vendor, passed=False, report=report(False, reason="the answer does not say that it is 4")
    )
    page = signed_in(acme.dora).get("/staff/vendors/acme")
    text = text_of(page)
    assert "Failed arithmetic must pass what 2 + 2 is" in text
    assert "The answer does not say that it is 4" in text
    assert "Compute 2+2." in text
    assert "Scope. One authored check. The server: llama.cpp." in text
    assert "1 failed" in text


def test_what_a_vendor_said_is_escaped(acme, vendor) -> None:
    check = checked(vendor, report=report(response=HOSTILE, reason=HOSTILE, id=HOSTILE))
    client = signed_in(acme.dora)
    for path in ("", f"/checks/{check.pk}"):
        page = page_of(client.get(f"/staff/vendors/acme{path}"))
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert" in page


def test_what_could_not_be_probed_is_no_failure(acme, vendor) -> None:
    entry = {"id": "cancel", "request": None, "response": None, "observed": {"waited_ms": 5}}
    checked(vendor, passed=None, report=report(None, reason="the vendor is busy", **entry))
    text = text_of(signed_in(acme.dora).get("/staff/vendors/acme"))
    assert "Could not be probed cancel" in text
    assert "Nothing was sent." in text
    assert "Nothing came back." in text
    assert '"waited_ms": 5' in text


def test_evidence_is_bounded(acme, vendor) -> None:
    checked(vendor, report=report(response=["x" * 100] * 1_000))
    page = page_of(signed_in(acme.dora).get("/staff/vendors/acme"))
    assert len(page) < 60_000
    assert "more characters" in page


def test_the_model_that_needs_a_look_is_shown_first(acme, vendor) -> None:
    Route.objects.create(vendor=vendor, model=Route.objects.get().model, vendor_model="zeta")
    checked(vendor, "small")
    checked(vendor, "zeta", passed=False)
    client = signed_in(acme.dora)
    assert "zeta Failed 1 failed" in text_of(client.get("/staff/vendors/acme"))
    assert "small Passed 1 passed" in text_of(client.get("/staff/vendors/acme?model=small"))


def test_checks_so_far_are_paged_and_each_has_its_page(acme, vendor, monkeypatch) -> None:
    monkeypatch.setattr(detail, "CHECKS", 2)
    first = checked(vendor, at=NOW - timedelta(hours=3), base_url="http://before/v1")
    for hours in (2, 1):
        checked(vendor, at=NOW - timedelta(hours=hours))
    client = signed_in(acme.dora)
    newest = client.get("/staff/vendors/acme")
    assert "Newest first, 2 of 3." in text_of(newest)
    older = re.search(r'href="([^"]+)" rel="next"', page_of(newest)).group(1)
    page = client.get(older.replace("&amp;", "&"))
    assert "small at another address Passed" in text_of(page)
    assert f"/staff/vendors/acme/checks/{first.pk}" in page_of(page)
    text = text_of(client.get(f"/staff/vendors/acme/checks/{first.pk}"))
    assert "Made at another address" in text
    assert "Started, UTC 2026-12-15 11:20:04 Took 703 ms Tokens 4,012" in text


def test_a_check_of_another_vendor_is_not_found(acme, vendor) -> None:
    check = checked(made_vendor(URL, name="other"))
    assert signed_in(acme.dora).get(f"/staff/vendors/acme/checks/{check.pk}").status_code == 404


def test_a_vendor_without_routes_checks_or_acts_says_so(acme) -> None:
    made_vendor(URL)
    text = text_of(signed_in(acme.dora).get("/staff/vendors/acme"))
    for words in ("No route leads to it", "No check yet", "Nothing is on record"):
        assert words in text


# --- acts ---------------------------------------------------------------------------------------


def test_every_act_is_asked_for_and_done_with_a_reason(acme, vendor) -> None:
    client = confirmed(acme.dora)
    for act in ("override", "disable", "enable", "withdraw"):
        assert f"/staff/vendors/acme/{act}" in page_of(client.get("/staff/vendors/acme"))
        assert "Reason, kept in the audit log" in text_of(client.get(f"/staff/vendors/acme/{act}"))
        done = client.post(f"/staff/vendors/acme/{act}", {"reason": f"to {act}"})
        assert (done.status_code, done.headers["location"]) == (302, "/staff/vendors/acme")
    trail = AuditEvent.objects.filter(subject="acme").order_by("pk")
    assert list(trail.values_list("action", "actor", "reason")) == [
        ("vendor:overridden", acme.dora.email, "to override"),
        ("vendor:disabled", acme.dora.email, "to disable"),
        ("vendor:enabled", acme.dora.email, "to enable"),
        ("vendor:override-withdrawn", acme.dora.email, "to withdraw"),
    ]
    text = text_of(client.get("/staff/vendors/acme"))
    assert f"Override withdrawn by {acme.dora.email} to withdraw" in text


def test_before_it_is_done_it_says_what_follows(acme, vendor) -> None:
    client = signed_in(acme.dora)

    def asked(act: str) -> str:
        return text_of(client.get(f"/staff/vendors/acme/{act}"))

    assert "answered with 503: acme-small. Nobody pays for that." in asked("disable")
    backup = made_vendor(URL, name="backup", qualified_base_url=URL)
    Route.objects.create(vendor=backup, model=Route.objects.first().model, vendor_model="b")
    assert "Its models have other routes." in asked("disable")
    assert "although its checks have not passed" in asked("override")
    Vendor.objects.filter(pk=vendor.pk).update(override_reason="a trial")
    assert "No live request goes to it. Not qualified. Its models" in asked("withdraw")
    Vendor.objects.filter(pk=vendor.pk).update(disabled_at=NOW, disabled_reason="its bill")
    assert "Live requests go to it. Not qualified; let in: a trial." in asked("enable")


def test_an_act_that_is_not_open_does_nothing(acme, vendor) -> None:
    client, before = confirmed(acme.dora), decided(vendor)
    assert client.get("/staff/vendors/acme/enable").status_code == 302
    refused = client.post("/staff/vendors/acme/enable", {"reason": "again"})
    assert refused.status_code == 409
    assert "Nothing was done" in text_of(refused)
    assert decided(vendor) == before
    assert not AuditEvent.objects.filter(subject="acme").exists()


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501, "with a \x00 in it"])
def test_an_act_without_a_good_reason_does_nothing(acme, vendor, reason: str) -> None:
    before = decided(vendor)
    refused = confirmed(acme.dora).post("/staff/vendors/acme/disable", {"reason": reason})
    assert refused.status_code == 422
    assert "Give a reason of 1 to 500 characters." in text_of(refused)
    assert decided(vendor) == before


def test_who_logged_in_long_ago_is_asked_again(acme, vendor) -> None:
    client, before = signed_in(acme.dora), decided(vendor)
    for path, fields in (("disable", {"reason": "its bill"}), ("check", {"model": "small"})):
        response = client.post(f"/staff/vendors/acme/{path}", fields)
        assert "reauthenticate" in response.headers["location"]
    assert decided(vendor) == before
    assert not CheckJob.objects.exists()


def test_without_a_token_nothing_is_done(acme, vendor) -> None:
    client, before = Client(enforce_csrf_checks=True), decided(vendor)
    client.force_login(acme.dora, backend=BACKEND)
    for path in ("disable", "check"):
        response = client.post(f"/staff/vendors/acme/{path}", {"reason": "x", "model": "small"})
        assert response.status_code == 403
    assert decided(vendor) == before
    assert not CheckJob.objects.exists()


# --- checking now -------------------------------------------------------------------------------


def test_a_check_that_was_asked_for_is_shown_from_queue_to_end(acme, vendor) -> None:
    client = confirmed(acme.dora)
    assert "Check now" in text_of(client.get("/staff/vendors/acme"))
    asked = client.post("/staff/vendors/acme/check", {"model": "small"})
    assert asked.headers["location"] == "/staff/vendors/acme?model=small#models"

    page = client.get("/staff/vendors/acme")
    assert "Queued since 14:20:05" in text_of(page)
    assert "Check now" not in text_of(page)
    assert 'hx-trigger="every 2s"' in page_of(page)
    CheckJob.objects.update(started_at=NOW)
    polled = client.get("/staff/vendors/acme", headers={"hx-request": "true"})
    assert "Running since 14:20:05" in text_of(polled)

    checked(vendor, at=NOW + timedelta(seconds=2))
    CheckJob.objects.update(finished_at=NOW + timedelta(seconds=2))
    over = client.get("/staff/vendors/acme", headers={"hx-request": "true"})
    assert over.headers["hx-refresh"] == "true"
    text = text_of(client.get("/staff/vendors/acme"))
    said = f"asked for by {acme.dora.email} at 14:20:05 · finished 2026-12-15 14:20:07 UTC"
    assert said in text
    assert "Check now" in text
    assert f"Check asked for: small by {acme.dora.email}" in text


def test_what_no_worker_takes_up_may_be_asked_for_again(acme, vendor) -> None:
    long_ago = NOW - timedelta(minutes=11)
    CheckJob.objects.create(vendor=vendor, vendor_model="small", asked_by="dora", asked_at=long_ago)
    client = confirmed(acme.dora)
    page = client.get("/staff/vendors/acme")
    assert "Queued since 14:09:05 Ask again" in text_of(page)
    assert "hx-trigger" not in page_of(page)
    assert client.post("/staff/vendors/acme/check", {"model": "small"}).status_code == 302
    assert CheckJob.objects.get().asked_at == long_ago


def test_a_check_that_was_cut_off_is_told(acme, vendor) -> None:
    CheckJob.objects.create(
        vendor=vendor,
        vendor_model="small",
        asked_by="dora",
        started_at=NOW,
        finished_at=NOW,
        problem="the worker was stopped in the middle of it",
    )
    text = text_of(signed_in(acme.dora).get("/staff/vendors/acme"))
    assert "The check that was asked for was not finished" in text
    assert "the worker was stopped in the middle of it" in text


def test_what_would_cost_too_much_is_not_offered_and_refused(acme, vendor) -> None:
    checked(vendor, spent_tokens=cost.DAY_TOKENS - 11_999)
    client = confirmed(acme.dora)
    text = text_of(client.get("/staff/vendors/acme"))
    assert "Check now" not in text
    assert "No check fits into today's cost any more" in text
    refused = client.post("/staff/vendors/acme/check", {"model": "small"})
    assert refused.status_code == 409
    assert "88,001 of 100,000 tokens in 24 hours" in text_of(refused)
    assert not CheckJob.objects.exists()


@pytest.mark.parametrize("model", ["", "nothing-of-its"])
def test_a_model_that_no_route_names_is_refused(acme, vendor, model: str) -> None:
    refused = confirmed(acme.dora).post("/staff/vendors/acme/check", {"model": model})
    assert refused.status_code == 409
    assert "No route names this model." in text_of(refused)
    assert not CheckJob.objects.exists()


@pytest.fixture
def clever() -> Iterator[Clever]:
    vendor = Clever()
    with served(vendor) as base_url:
        vendor.base_url = base_url
        yield vendor


def test_from_the_button_to_the_verdict(
    world, quick_passwords, clever, django_capture_on_commit_callbacks
) -> None:
    """A real vendor on loopback, and the task as a worker runs it."""
    vendor = made_vendor(clever.base_url, "echo", credential=SECRET)
    client = confirmed(world.person("dora", is_staff=True))
    with django_capture_on_commit_callbacks() as told:
        client.post("/staff/vendors/acme/check", {"model": "echo"})
    assert len(told) == 1

    check_vendor.apply((CheckJob.objects.get().pk,), throw=True)
    check_vendor.apply((CheckJob.objects.get().pk,), throw=True)

    assert VendorCheck.objects.get().passed
    assert clever.seen[0][b"authorization"] == f"Bearer {SECRET}".encode()
    page = client.get("/staff/vendors/acme")
    text = text_of(page)
    assert "acme Qualified its checks passed" in text_of(client.get("/staff/vendors"))
    assert "Passed arithmetic must pass" in text
    assert "Qualified by check_vendor" in text
    assert SECRET not in page_of(page)
    assert decided(vendor)[-1] == clever.base_url
