"""Messages: one line a kind, whatever the count."""

from datetime import timedelta

import pytest

from billing.messages import ESTIMATED, tell
from billing.models import Message
from tests.web.conftest import amounts_of, page_of, signed_in, text_of


def only(acme) -> Message:
    return Message.objects.get(tenant=acme.tenant)


def test_without_messages_it_says_what_would_be_here(acme):
    assert "No messages You are told here when" in text_of(signed_in(acme.bob).get("/messages"))


def test_ten_thousand_estimates_are_one_line(acme):
    last = acme.relayed().hold().settle_at_estimate()
    Message.objects.filter(tenant=acme.tenant).update(count=10_000, total_nanos=123_456_789)
    page = signed_in(acme.bob).get("/messages")
    text = text_of(page)
    assert "Open 1 Archived 0" in text
    assert "10,000 requests billed at estimate" in text
    assert f"{ESTIMATED} 0.123456789 USD in all" in text
    assert page_of(page).count("<li class=") == 1
    assert f'href="/requests/{last.public_id}"' in page_of(page)


def test_counts_and_sums_are_those_of_the_requests(acme):
    for minutes in (1, 2, 3):
        acme.relayed(ago=timedelta(minutes=minutes)).hold().settle_at_estimate()
    acme.relayed().hold().settle()
    browser = signed_in(acme.bob)
    messages = browser.get("/messages")
    assert "3 requests billed at estimate" in text_of(messages)
    assert amounts_of(page_of(messages)) == ["0.007003200"]
    address = page_of(messages).partition('class="title" href="')[2].partition('"')[0]
    requests = text_of(browser.get(address.replace("&amp;", "&")))
    assert "3 requests" in requests
    assert "Charged 0.007003200 USD" in requests


def test_reading_is_marked_and_the_next_one_unmarks_it(acme):
    acme.relayed().hold().settle_at_estimate()
    browser = signed_in(acme.alice)
    unread = '<li class="unread">'
    assert unread in page_of(browser.get("/messages"))
    assert browser.post(f"/messages/{only(acme).pk}/read")["location"] == "/messages"
    assert unread not in page_of(browser.get("/messages"))
    acme.relayed().hold().settle_at_estimate()
    assert unread in page_of(browser.get("/messages"))


def test_what_is_archived_stays_with_its_count(acme):
    acme.relayed().hold().settle_at_estimate()
    browser = signed_in(acme.alice)
    browser.post(f"/messages/{only(acme).pk}/archive")
    archived = only(acme)
    browser.post(f"/messages/{archived.pk}/archive")
    assert only(acme).archived_at == archived.archived_at
    assert "Open 0 Archived 1" in text_of(browser.get("/messages"))
    assert "1 request billed at estimate" in text_of(browser.get("/messages?show=archived"))
    acme.relayed().hold().settle_at_estimate()
    assert "Open 1 Archived 1" in text_of(browser.get("/messages"))


def test_a_shortfall_has_words_of_its_own(acme):
    exchange = acme.relayed().hold().settle()
    tell(
        acme.tenant.pk,
        "shortfall",
        "a request cost more than the balance carried",
        user_status=200,
        exchange_id=exchange.id,
        nanos=5,
        currency="USD",
        is_test=False,
    )
    page = signed_in(acme.alice).get("/messages")
    assert "Shortfall 1 request cost more than the balance carried" in text_of(page)
    assert "estimates=1" not in page_of(page)


@pytest.mark.parametrize("act", ["read", "archive"])
def test_who_may_only_look_changes_nothing(acme, act):
    acme.relayed().hold().settle_at_estimate()
    bob = signed_in(acme.bob)
    assert "<button" not in page_of(bob.get("/messages")).partition("<main")[2]
    assert bob.post(f"/messages/{only(acme).pk}/{act}").status_code == 403
    assert (only(acme).read_at, only(acme).archived_at) == (None, None)


@pytest.mark.parametrize("act", ["read", "archive"])
def test_another_tenants_message_is_not_found(acme, act):
    acme.relayed().hold().settle_at_estimate()
    response = signed_in(acme.charlie).post(f"/messages/{only(acme).pk}/{act}")
    assert response.status_code == 404
    assert (only(acme).read_at, only(acme).archived_at) == (None, None)


def test_a_message_is_not_changed_by_a_get(acme):
    acme.relayed().hold().settle_at_estimate()
    assert signed_in(acme.alice).get(f"/messages/{only(acme).pk}/archive").status_code == 405
