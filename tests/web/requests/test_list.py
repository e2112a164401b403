"""The list of requests: what is in it, what it adds up to, and where its links lead."""

import re
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from billing.ids import completion_id
from billing.usage import Usage
from tests.web.conftest import amounts_of, page_of, signed_in, text_of

IDS = re.compile(r'href="/requests/(req_[0-9A-Z]{26})"')


def ids_of(response) -> list[str]:
    return IDS.findall(page_of(response).partition('class="table dense list')[2])


def link(response, words: str) -> str:
    address = re.search(rf'href="([^"]+)"[^>]*>{words}<', page_of(response))[1]
    return address.replace("&amp;", "&")


# --- empty --------------------------------------------------------------------------------------


def test_without_any_request_it_shows_how_to_send_one(acme):
    response = signed_in(acme.bob).get("/requests")
    text = text_of(response)
    assert "No requests yet" in text
    assert "Put the secret of the key ci-agents into FARTHING_KEY" in text
    assert "curl http://testserver/v1/chat/completions" in page_of(response)
    assert acme.secret not in page_of(response)


def test_without_a_key_a_key_comes_first(acme):
    erin = acme.world.person("erin", acme.world.tenant("Empty"))
    assert "A key comes first" in text_of(signed_in(erin).get("/requests"))


def test_filters_that_leave_nothing_can_be_cleared(acme):
    exchange = acme.relayed().hold().settle()
    browser = signed_in(acme.bob)
    response = browser.get("/requests?period=7d&status=failed")
    assert "No requests with these filters" in text_of(response)
    cleared = browser.get(link(response, "Clear the filters"))
    assert ids_of(cleared) == [exchange.public_id]


def test_a_period_that_has_nothing_says_so(acme):
    acme.relayed().hold().settle()
    response = signed_in(acme.bob).get("/requests?period=last-month")
    assert "No requests in this period" in text_of(response)


# --- rows ---------------------------------------------------------------------------------------


def test_a_row_says_all_of_a_request(acme):
    acme.relayed(model="qwen2.5-coder-1.5b-free-g7").hold().settle()
    text = text_of(signed_in(acme.bob).get("/requests"))
    assert re.search(
        r"14:15:05\.000 req_…\w{8} qwen2\.5-…b-free-g7 ci-agents Settled stream "
        r"40 0\.12 1,024 24 333 stop 0\.002334400 Newest first, 1 of 1\.",
        text,
    )


def test_refused_failed_and_open_requests_are_listed(acme):
    refused = acme.relayed(ago=timedelta(minutes=4)).refuse()
    failed = acme.relayed(ago=timedelta(minutes=3)).hold()
    failed.settle(Usage(), outcome="failed", source="none", status_code=502)
    waiting = acme.relayed(ago=timedelta(minutes=2), hold_nanos=3_426_764).hold()
    waiting.wait_for_estimate()
    streaming = acme.relayed(ago=timedelta(minutes=1), hold_nanos=6_563_966).hold()
    response = signed_in(acme.bob).get("/requests")
    assert ids_of(response) == [
        exchange.public_id for exchange in (streaming, waiting, failed, refused)
    ]
    text = text_of(response)
    for words in (
        "held 0.006563966",
        "held 0.003426764",
        "Streaming",
        "Estimating",
        "Failed 502",
        "Refused 402",
        "2 failed or refused, not charged",
        "2 not settled yet",
        "Charged 0.000000000 USD",
    ):
        assert words in text


def test_counts_and_the_charged_total_are_those_of_the_rows(acme):
    for minutes in range(3):
        acme.relayed(ago=timedelta(minutes=minutes + 1)).hold().settle()
    acme.relayed(ago=timedelta(hours=5)).hold().settle_at_estimate()
    response = signed_in(acme.bob).get("/requests")
    text = text_of(response)
    assert "4 requests" in text
    assert "3 settled at vendor usage" in text
    assert "1 at estimate" in text
    rows = amounts_of(page_of(response).partition('class="table dense list')[2])
    assert rows == ["0.002334400"] * 4
    assert "Charged 0.009337600 USD" in text


def test_the_chart_and_its_table_have_the_same_numbers(acme):
    acme.relayed(ago=timedelta(minutes=1)).hold().settle()
    acme.relayed(ago=timedelta(hours=2)).hold().settle_at_estimate()
    response = signed_in(acme.bob).get("/requests")
    assert "<title>14:15: 1 requests, 0 at estimate, 0 failed or refused</title>" in page_of(
        response
    )
    text = text_of(response)
    assert "12:15 0 1 0 0 1 0.002334400 14:15 1 0 0 0 1 0.002334400" in text
    assert "Total 1 1 0 0 2 0.004668800" in text


# --- filters ------------------------------------------------------------------------------------


@pytest.fixture
def many(acme) -> dict[str, str]:
    """One of each, by the name of what is special about it."""
    other = acme.world.key(acme.tenant, "notebooks").key
    failed = acme.relayed().hold()
    failed.settle(Usage(), outcome="failed", source="none", status_code=503)
    found = {
        "plain": acme.relayed().hold().settle(),
        "model": acme.relayed(model="deepseek-v4").hold().settle(),
        "key": acme.relayed(key=other).hold().settle(),
        "estimate": acme.relayed().hold().settle_at_estimate(),
        "whole": acme.relayed(is_stream=False).hold().settle(),
        "failed": failed,
        "refused": acme.relayed().refuse(),
        "open": acme.relayed().hold(),
        "yesterday": acme.relayed(ago=timedelta(days=1)).hold().settle(),
    }
    return {exchange.public_id: name for name, exchange in found.items()} | {
        "notebooks": other.public_id
    }


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("model=deepseek-v4", {"model"}),
        ("key={notebooks}", {"key"}),
        ("status=settled", {"plain", "model", "key", "whole"}),
        ("status=at_estimate", {"estimate"}),
        ("status=failed", {"failed"}),
        ("status=refused", {"refused"}),
        ("status=open", {"open"}),
        ("stream=whole", {"whole"}),
        ("errors=1", {"failed", "refused"}),
        ("estimates=1", {"estimate"}),
        ("period=yesterday", {"yesterday"}),
        ("period=custom&since=2026-12-14&until=2026-12-14", {"yesterday"}),
        ("stream=whole&model=deepseek-v4", set()),
    ],
)
def test_a_filter_leaves_what_it_says_in_list_count_and_csv(acme, many, query, names):
    browser = signed_in(acme.bob)
    query = query.format(notebooks=many["notebooks"])
    response = browser.get(f"/requests?{query}")
    assert {many[public_id] for public_id in ids_of(response)} == names
    plural = "" if len(names) == 1 else "s"
    assert f"{len(names)} request{plural}" in text_of(response)
    rows = b"".join(browser.get(f"/requests.csv?{query}")).decode().splitlines()[1:]
    assert {many[row.split(",")[1]] for row in rows} == names


def test_another_tenants_key_finds_nothing(acme):
    acme.relayed().hold().settle()
    other = acme.charlie.memberships.get().tenant
    key = acme.world.key(other).key
    assert ids_of(signed_in(acme.bob).get(f"/requests?key={key.public_id}")) == []


def test_set_filters_are_marked_and_can_be_taken_back(acme):
    acme.relayed().hold().settle()
    page = page_of(signed_in(acme.bob).get("/requests?errors=1&status=failed"))
    assert 'class="chip set" href="/requests?status=failed" aria-current="true"' in page
    assert '<summary class="chip set">Status <b>Failed</b>' in page


# --- pages --------------------------------------------------------------------------------------


def test_pages_go_to_older_and_back_without_a_gap(acme):
    made = [
        acme.relayed(ago=timedelta(minutes=minutes + 1)).hold().settle().public_id
        for minutes in range(45)
    ]
    browser = signed_in(acme.bob)
    first = browser.get("/requests")
    second = browser.get(link(first, "Older"))
    third = browser.get(link(second, "Older"))
    assert ids_of(first) + ids_of(second) + ids_of(third) == made
    assert 'aria-disabled="true">Older' in page_of(third)
    assert 'aria-disabled="true">Newer' in page_of(first)
    assert ids_of(browser.get(link(third, "Newer"))) == ids_of(second)
    assert link(second, "Newer") == "/requests"
    assert "20 of 45" in text_of(first)
    assert "5 of 45" in text_of(third)


def test_the_cursor_keeps_the_filter(acme):
    for minutes in range(21):
        acme.relayed(ago=timedelta(minutes=minutes + 1), model="m").hold().settle()
    acme.relayed(ago=timedelta(minutes=40)).hold().settle()
    browser = signed_in(acme.bob)
    older = browser.get(link(browser.get("/requests?model=m"), "Older"))
    assert len(ids_of(older)) == 1
    assert urlsplit(link(older, "Newer")).query == "model=m"


def test_beyond_the_last_page_it_leads_back(acme):
    first = acme.relayed().hold().settle()
    response = signed_in(acme.bob).get(f"/requests?older={first.public_id}")
    assert "Nothing older" in text_of(response)
    assert link(response, "To the newest") == "/requests"


def test_a_cursor_that_is_none_is_the_first_page(acme):
    exchange = acme.relayed().hold().settle()
    assert ids_of(signed_in(acme.bob).get("/requests?older=nonsense")) == [exchange.public_id]


# --- going to an id -----------------------------------------------------------------------------


def test_both_ids_lead_to_the_request(acme):
    exchange = acme.relayed().hold().settle()
    browser = signed_in(acme.bob)
    for wanted in (exchange.public_id, completion_id(exchange.id), f" {exchange.public_id} "):
        response = browser.get("/requests", {"id": wanted})
        assert response["location"] == f"/requests/{exchange.public_id}"


@pytest.mark.parametrize("wanted", ["req_nope", "x", "<b>", "req_" + "0" * 26])
def test_an_id_that_names_nothing_is_said_so(acme, wanted):
    response = signed_in(acme.bob).get("/requests", {"id": wanted})
    assert "There is no request with this id" in text_of(response)
    assert "<b>" + "</code>" not in page_of(response)


def test_another_tenants_id_names_nothing(acme):
    exchange = acme.relayed().hold().settle()
    response = signed_in(acme.charlie).get("/requests", {"id": exchange.public_id})
    assert "There is no request with this id" in text_of(response)


def test_a_name_from_a_request_is_never_markup(acme):
    acme.relayed(model='<img src=x onerror="1">').hold().settle(finish_reason="<i>")
    page = page_of(signed_in(acme.bob).get("/requests"))
    assert "<img" not in page
    assert "<i>" not in page
