"""Who gets into which page, and what stays outside."""

import pytest
from django.test import Client

from tests.web.conftest import confirmed, page_of, signed_in, text_of

PAGES = ["/requests", "/requests.csv", "/keys", "/messages"]


@pytest.mark.parametrize("address", [*PAGES, "/", "/keys/new", "/staff", "/requests/req_x"])
def test_who_is_signed_out_is_asked_to_log_in(db, address):
    response = Client().get(address)
    assert (response.status_code, response["location"]) == (
        302,
        f"/accounts/login/?next={address}",
    )


@pytest.mark.parametrize("address", PAGES)
def test_every_member_sees_the_pages(acme, address):
    for person in (acme.alice, acme.bob):
        assert signed_in(person).get(address).status_code == 200


@pytest.mark.parametrize("address", PAGES)
def test_who_belongs_nowhere_is_sent_to_the_first_page(acme, address):
    response = signed_in(acme.dora).get(address)
    assert (response.status_code, response["location"]) == (302, "/")


@pytest.mark.parametrize("address", PAGES)
def test_pages_are_kept_by_nobody(acme, address):
    kept = signed_in(acme.alice).get(address)["cache-control"]
    assert {"no-store", "private"} <= set(kept.split(", "))


def test_another_tenants_things_are_not_found(acme):
    exchange = acme.relayed().hold().settle()
    charlie = confirmed(acme.charlie)
    for address in (
        f"/requests/{exchange.public_id}",
        f"/requests/{exchange.public_id}.json",
        f"/keys/{acme.key.public_id}",
        f"/keys/{acme.key.public_id}/revoke",
    ):
        assert charlie.get(address).status_code == 404
    for address in ("/requests", "/requests.csv", "/keys"):
        page = b"".join(charlie.get(address)).decode()
        assert exchange.public_id not in page
        assert acme.key.public_id not in page


def test_who_was_removed_is_out_with_the_next_click(acme):
    bob = signed_in(acme.bob)
    assert bob.get("/keys").status_code == 200
    acme.bob.memberships.all().delete()
    assert bob.get("/keys")["location"] == "/"
    assert "You belong to no organisation" in text_of(bob.get("/"))


def test_the_policy_allows_our_own_origin_only(acme):
    policy = signed_in(acme.alice).get("/requests")["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("address", ["/requests", "/keys", "/messages"])
def test_no_page_has_a_style_or_a_script_of_its_own(acme, address):
    acme.relayed().hold().settle_at_estimate()
    page = page_of(signed_in(acme.alice).get(address))
    assert "<style" not in page
    assert " style=" not in page
    assert "<script>" not in page
    assert " onclick" not in page
