"""Where the first page leads, and how tenant and mode are changed."""

import pytest
from django.test import Client

from tests.web.conftest import NOW, page_of, signed_in, text_of


def test_the_first_page_is_the_list_of_requests(acme):
    assert signed_in(acme.alice).get("/")["location"] == "/requests"


def test_without_a_key_the_first_page_is_the_list_of_keys(acme):
    alone = acme.world.person("erin", acme.world.tenant("Empty"))
    assert signed_in(alone).get("/")["location"] == "/keys"


def test_the_first_page_of_staff_is_the_operators(acme):
    assert signed_in(acme.dora).get("/")["location"] == "/staff"


def test_a_real_log_in_leads_to_the_requests(acme):
    browser = Client()
    response = browser.post(
        "/accounts/login/", {"login": acme.alice.email, "password": "alice-password"}, follow=True
    )
    assert response.redirect_chain == [("/", 302), ("/requests", 302)]
    assert "Acme" in page_of(response)


def test_a_log_out_ends_the_session(acme):
    browser = signed_in(acme.alice)
    browser.post("/accounts/logout/")
    assert browser.get("/requests")["location"].startswith("/accounts/login/")


def test_the_mode_is_changed_where_one_is(acme):
    browser = signed_in(acme.alice)
    headers = {"referer": "http://testserver/keys/new?x=1"}
    response = browser.post("/mode", {"mode": "test"}, headers=headers)
    assert response["location"] == "/keys"
    assert "Keys sk_test_ only." in page_of(browser.get("/keys"))


@pytest.mark.parametrize(
    ("wanted", "led_to"),
    [
        ("/requests/req_1", "/requests/req_1"),
        ("https://evil.example/requests/", "/"),
        ("//evil.example/requests/", "/"),
        ("/accounts/logout/", "/"),
    ],
)
def test_the_mode_leads_to_a_request_and_nowhere_else(acme, wanted, led_to):
    response = signed_in(acme.alice).post("/mode", {"mode": "live", "next": wanted})
    assert response["location"] == led_to


def test_an_unknown_mode_changes_nothing(acme):
    browser = signed_in(acme.alice)
    assert browser.post("/mode", {"mode": "staff"}).status_code == 404
    assert "mode" not in browser.session


@pytest.mark.parametrize("address", ["/mode", "/tenant", "/keys/stored"])
def test_what_changes_something_is_never_a_get(acme, address):
    assert signed_in(acme.alice).get(address).status_code in {404, 405}


@pytest.mark.parametrize("address", ["/mode", "/tenant", "/keys/new"])
def test_a_post_without_its_token_is_refused(acme, address):
    browser = Client(enforce_csrf_checks=True)
    browser.cookies = signed_in(acme.alice).cookies
    response = browser.post(address, {"mode": "test"})
    assert response.status_code == 403
    assert "The form is out of date" in text_of(response)
    assert "mode" not in browser.session


def test_a_person_in_two_tenants_changes_between_them(acme):
    from keys.models import Role
    from keys.services import add_member

    second = acme.world.tenant("Second")
    add_member(second, acme.alice, Role.VIEWER)
    browser = signed_in(acme.alice)
    assert "Keys of Acme" in text_of(browser.get("/keys"))
    assert browser.post("/tenant", {"tenant": second.slug})["location"] == "/"
    assert "Keys of Second" in text_of(browser.get("/keys"))
    assert browser.get(f"/keys/{acme.key.public_id}").status_code == 404


def test_a_tenant_of_others_cannot_be_chosen(acme):
    browser = signed_in(acme.alice)
    slug = acme.charlie.memberships.get().tenant.slug
    assert browser.post("/tenant", {"tenant": slug}).status_code == 404
    assert "Keys of Acme" in text_of(browser.get("/keys"))


def test_test_and_live_never_mix(acme):
    live = acme.relayed().hold().settle_at_estimate()
    test = acme.relayed_in_test().hold().settle_at_estimate()
    browser = signed_in(acme.alice)
    for mode, shown, hidden in (("live", live, test), ("test", test, live)):
        browser.post("/mode", {"mode": mode})
        for address in ("/requests", "/requests.csv", "/messages"):
            page = b"".join(browser.get(address)).decode()
            assert shown.public_id in page
            assert hidden.public_id not in page
        keys = page_of(browser.get("/keys"))
        assert shown.key.public_id in keys
        assert hidden.key.public_id not in keys
        assert browser.get(f"/keys/{hidden.key.public_id}").status_code == 404
        assert browser.get(f"/requests/{hidden.public_id}.json").status_code == 404


def test_a_request_of_the_other_mode_says_how_to_get_to_it(acme):
    test = acme.relayed_in_test().hold().settle()
    browser = signed_in(acme.alice)
    address = f"/requests/{test.public_id}"
    response = browser.get(address)
    assert response.status_code == 404
    assert "This request was made with a test key" in text_of(response)
    assert browser.post("/mode", {"mode": "test", "next": address})["location"] == address
    assert browser.get(address).status_code == 200


def test_a_test_page_shows_no_live_money(acme):
    browser = signed_in(acme.alice)
    assert "Available" in page_of(browser.get("/keys"))
    browser.post("/mode", {"mode": "test"})
    assert "Available" not in page_of(browser.get("/keys"))


def test_every_moment_is_told_to_machines_too(acme):
    acme.relayed().hold().settle()
    page = page_of(signed_in(acme.alice).get("/requests"))
    assert f'<time datetime="{NOW:%Y-%m-%d}T14:15:05.000Z"' in page
