"""The operator's page."""

from datetime import timedelta

from billing.audit import FIGURES, audit_and_keep
from billing.models import AuditRun, EstimateJob, NoticeKind
from billing.notices import notify_staff
from tests.web.conftest import page_of, signed_in, text_of


def test_tenants_people_may_not_see_it(acme):
    for person in (acme.alice, acme.charlie):
        assert signed_in(person).get("/staff").status_code == 403


def test_before_the_first_audit_it_says_when_there_is_one(acme):
    AuditRun.objects.all().delete()
    text = text_of(signed_in(acme.dora).get("/staff"))
    assert "The audit has not run yet" in text


def test_a_clean_audit_is_zero_differences(acme):
    acme.relayed().hold().settle()
    report = audit_and_keep()
    assert report.is_clean
    page = signed_in(acme.dora).get("/staff")
    assert "Zero differences" in text_of(page)
    assert "<b>STAFF</b>" in page_of(page)


def test_a_running_audit_has_no_figures_yet(acme):
    AuditRun.objects.create()
    assert "Running" in text_of(signed_in(acme.dora).get("/staff"))


def test_a_difference_is_shown_with_its_rule(acme):
    rule = "balance differs from its transfers"
    AuditRun.objects.create(
        finished_at=acme.key.created_at,
        figures=dict.fromkeys(FIGURES, 1),
        differences=[{"rule": rule, "row": {"id": 7, "posted_nanos": 1, "recomputed": 2}}],
    )
    text = text_of(signed_in(acme.dora).get("/staff"))
    assert "The ledger does not add up" in text
    assert rule in text
    assert "Differences 1" in text


def test_what_hangs_is_counted_by_state_with_its_age(acme):
    acme.relayed(ago=timedelta(minutes=12)).hold()
    waiting = acme.relayed(ago=timedelta(minutes=3)).hold().wait_for_estimate()
    EstimateJob.objects.filter(exchange_id=waiting.id).update(
        last_error="JSONDecodeError", attempt_count=2
    )
    text = text_of(signed_in(acme.dora).get("/staff"))
    assert "Estimating 1 2026-12-15 14:17:05 Open 1 2026-12-15 14:08:05" in text
    assert "Total, the oldest 12 minutes old 2" in text
    assert f"{waiting.id} echo JSONDecodeError 2" in text


def test_what_went_another_way_is_shown_with_its_words(acme):
    exchange = acme.relayed().hold().settle()
    notify_staff(NoticeKind.ESTIMATE_GIVEN_UP, exchange.id, acme.tenant.pk, "ZstdError")
    text = text_of(signed_in(acme.dora).get("/staff"))
    words = "its tokens could not be counted; nothing was charged for it; ZstdError"
    assert f"{exchange.id} {words}" in text


def test_who_is_staff_and_a_member_finds_both(acme):
    acme.alice.is_staff = True
    acme.alice.save(update_fields=["is_staff"])
    browser = signed_in(acme.alice)
    assert 'href="/staff"' in page_of(browser.get("/keys"))
    page = page_of(browser.get("/staff"))
    assert "<b>STAFF</b>" in page
    assert "Available" not in page
