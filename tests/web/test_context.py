"""The frame around the pages: balance, unread messages, health."""

from datetime import timedelta

from billing.models import Account, Plan
from billing.plans import assign_plan
from gateway.web.context import available_nanos, health, plan_name, unread_count
from gateway.web.place import Place
from tests.web.conftest import NOW, page_of, signed_in


def place(acme, mode: str = "live") -> Place:
    return Place(acme.alice.memberships.get(), mode, (acme.tenant,))


def test_available_is_what_is_neither_spent_nor_held(acme):
    acme.relayed(hold_nanos=4_000_000).hold()
    assert available_nanos(acme.tenant) == 10_000_000_000 - 4_000_000
    assert "9.996000000" in page_of(signed_in(acme.bob).get("/keys"))


def test_without_a_wallet_nothing_is_said_to_be_available(acme):
    from keys.services import create_tenant

    tenant = create_tenant("Bare", f"{acme.tenant.slug}-bare", actor="tests")
    assert available_nanos(tenant) is None


def test_credit_is_available_until_it_expires(acme):
    for days, nanos in ((1, 5_000_000_000), (-1, 7_000_000_000)):
        Account.objects.create(
            tenant=acme.tenant,
            kind="credit",
            currency="USD",
            posted_nanos=nanos,
            expires_at=NOW + timedelta(days=days),
        )
    assert available_nanos(acme.tenant) == 15_000_000_000


def test_the_plan_is_named(acme):
    assert plan_name(acme.tenant) == ""
    plan = Plan.objects.create(name=f"Team {acme.tenant.slug}")
    assign_plan(acme.tenant, plan, actor="tests")
    assert f"owner · plan {plan.name}" in page_of(signed_in(acme.alice).get("/keys"))
    assign_plan(acme.tenant, None, actor="tests", starts_at=NOW + timedelta(days=1))
    assert plan_name(acme.tenant) == plan.name


def test_unread_messages_are_counted_by_mode(acme):
    acme.relayed().hold().settle_at_estimate()
    acme.relayed().hold().settle_at_estimate()
    assert (unread_count(place(acme)), unread_count(place(acme, "test"))) == (1, 0)
    assert '<span class="n">1</span>' in page_of(signed_in(acme.bob).get("/keys"))


def test_health_says_what_the_last_requests_met(acme):
    assert health(place(acme)) is None
    acme.relayed().hold().settle()
    assert health(place(acme)).text == "Vendors answer"
    acme.relayed().hold().settle(
        outcome="failed", source="none", status_code=503, error_code="upstream_unavailable"
    )
    assert health(place(acme)).text == "Vendors failed 1 of 2"
    assert health(place(acme, "test")) is None


def test_a_refusal_of_ours_is_no_failure_of_a_vendor(acme):
    acme.relayed().refuse()
    assert health(place(acme)).text == "Vendors answer"


def test_health_forgets(acme):
    acme.relayed(ago=timedelta(minutes=16)).hold().settle()
    assert health(place(acme)) is None


def test_the_current_part_of_the_site_is_marked(acme):
    browser = signed_in(acme.alice)
    page = page_of(browser.get(f"/keys/{acme.key.public_id}"))
    assert '<a href="/keys" aria-current="page">' in page
    assert '<a href="/requests">' in page
