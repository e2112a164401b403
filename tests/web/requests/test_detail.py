"""One request's page: its arithmetic, its four legs, and what is not stored."""

import json
import re
from datetime import timedelta

import orjson
import pytest
from django.utils.html import strip_tags

from billing.messages import ESTIMATED
from billing.models import Plan, PlanTerms, Transfer
from billing.usage import Usage
from gateway.exchanges.legs import NOTHING_STORED, REFUSED, SUMMARIES_ONLY
from tests.gateway.exchanges.made import REQUEST, a_stream, record
from tests.web.conftest import NOW, amounts_of, page_of, signed_in, text_of

SECRET = "sk_live_0123456789_" + "a" * 33


def page(acme, exchange, query: str = "") -> str:
    response = signed_in(acme.bob).get(f"/requests/{exchange.public_id}{query}")
    assert response.status_code == 200
    return page_of(response)


def shown(acme, exchange, query: str = "") -> str:
    return text_of(signed_in(acme.bob).get(f"/requests/{exchange.public_id}{query}"))


def cells(html: str) -> list[list[str]]:
    """The rows of the charge's table, each cell as text."""
    table = html.partition('<table class="table blocks">')[2].partition("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [
        [" ".join(strip_tags(cell).split()) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in rows[1:]
    ]


# --- head ---------------------------------------------------------------------------------------


def test_the_head_says_what_it_was(acme):
    exchange = acme.relayed(model="deepseek-v4").hold().settle()
    text = shown(acme, exchange)
    assert f"{exchange.public_id} Settled" in text
    for fact in (
        "Started, UTC 2026-12-15 14:15:05.000",
        "Model deepseek-v4",
        "Key ci-agents",
        "Answer 200, stream",
        "First token 40 ms",
        "Duration 120 ms",
        "Finish stop",
        "Charge, USD 0.002334400",
    ):
        assert fact in text


def test_what_is_not_settled_is_on_hold(acme):
    text = shown(acme, acme.relayed(hold_nanos=6_563_966).hold())
    assert "On hold, USD held 0.006563966" in text
    assert "USD, not settled yet" in text
    assert "Until then 0.006563966 USD are held" in text


@pytest.mark.parametrize("wrong", ["req_nope", "req_" + "0" * 26, "chatcmpl-x", "x.json"])
def test_an_id_of_nothing_is_not_found(acme, wrong):
    assert signed_in(acme.bob).get(f"/requests/{wrong}").status_code == 404


def test_a_completions_id_shows_the_same_page(acme):
    exchange = acme.relayed().hold().settle()
    name = "chatcmpl-" + exchange.public_id.removeprefix("req_")
    response = signed_in(acme.bob).get(f"/requests/{name}")
    assert exchange.public_id in text_of(response)


# --- the charge ---------------------------------------------------------------------------------


def test_each_line_is_quantity_times_price_rounded_once(acme):
    price = acme.world.price("half", input_price="0.2795", cached_input="0.028")
    usage = Usage(input_tokens=1_843, cached_input_tokens=7, output_tokens=1_128)
    exchange = acme.relayed(price=price).hold().settle(usage)
    table = cells(page(acme, exchange))
    assert [[row[0], row[1], row[3], *row[4:]] for row in table[:3]] == [
        ["Input", "1,843", "Vendor", "0.279500", "= exactly 0.0005151185", "0.000515119"],
        ["Cached input", "7", "Vendor", "0.028000", "= exactly 0.000000196", "0.000000196"],
        ["Output", "1,128", "Vendor", "4.000000", "= exactly 0.004512000", "0.004512000"],
    ]
    assert table[3][-1] == "0.005027315"


def test_lines_add_up_to_the_charge_in_list_keys_and_json(acme):
    exchange = acme.relayed().hold().settle()
    browser = signed_in(acme.bob)
    html = page(acme, exchange)
    lines = [round(float(row[-1]) * 10**9) for row in cells(html)]
    assert sum(lines[:-1]) == lines[-1] == 2_334_400
    shape = browser.get(f"/requests/{exchange.public_id}.json").json()
    assert shape["charge"] == "0.002334400"
    assert "0.002334400" in amounts_of(page_of(browser.get("/requests")))
    assert "0.002334400" in amounts_of(page_of(browser.get("/keys")))


def test_a_price_a_request_is_a_line_of_its_own(acme):
    price = acme.world.price("each", per_request="0.0005")
    exchange = acme.relayed(price=price).hold().settle()
    row = cells(page(acme, exchange))[3]
    assert [row[0], row[1], row[3], row[4]] == [
        "Per request",
        "1",
        "by the price",
        "0.000500 a request",
    ]
    assert row[5:] == ["= exactly 0.000500000", "0.000500000"]


def test_hold_less_charge_is_what_was_released_with_the_transfers(acme):
    exchange = acme.relayed(hold_nanos=5_000_000).hold().settle()
    text = shown(acme, exchange)
    assert "Held at the start 0.005000000" in text
    assert "Charge −0.002334400" in text
    assert "Released to you 0.002665600" in text
    held, posted = Transfer.objects.filter(link=exchange.id).order_by("id")
    assert f"{held.public_id} held 0.005000000" in text
    assert f"{posted.public_id} posted 0.002334400" in text


def test_a_charge_beyond_the_hold_says_where_it_came_from(acme):
    exchange = acme.relayed(hold_nanos=1_000_000).hold().settle()
    text = shown(acme, exchange)
    assert "Taken beyond the hold 0.001334400" in text
    assert "Released to you 0.000000000" in text


def test_what_the_balance_did_not_carry_is_borne_by_the_operator(acme):
    tenant = acme.world.tenant("Poor", balance="0.001")
    key = acme.world.key(tenant).key
    exchange = acme.relayed(tenant=tenant, key=key, hold_nanos=1_000_000).hold().settle()
    owner = acme.world.person("erin", tenant)
    html = page_of(signed_in(owner).get(f"/requests/{exchange.public_id}"))
    row, total = cells(html)[3:]
    assert (row[0], row[-1], total[-1]) == (
        "Not carried by the balance",
        "−0.001334400",
        "0.001000000",
    )


def test_a_released_hold_is_voided_and_nothing_charged(acme):
    exchange = acme.relayed(hold_nanos=5_000_000).hold()
    exchange.settle(Usage(), outcome="failed", source="none", status_code=502)
    text = shown(acme, exchange)
    assert "Released to you 0.005000000" in text
    assert "voided 0.005000000" in text


def test_the_price_version_is_named_with_its_beginning(acme):
    text = shown(acme, acme.relayed().hold().settle())
    assert f"price version {acme.price.public_id} in force since 15 Dec 2026" in text


def test_a_plan_says_what_it_made_of_the_price(acme):
    plan = Plan.objects.create(name=f"Team {acme.tenant.slug}")
    terms = PlanTerms.objects.create(
        plan=plan, currency="USD", effective_from=NOW - timedelta(days=1), price_factor_bps=9_000
    )
    exchange = acme.relayed(terms=terms).hold().settle()
    html = page(acme, exchange)
    assert f"in force since 15 Dec 2026, × 0.9 by the plan {plan.name}" in " ".join(
        strip_tags(html).split()
    )
    assert cells(html)[0][4:] == ["0.900000", "= exactly 0.000900000", "0.000900000"]


def test_an_estimate_says_its_message_and_how_it_was_counted(acme):
    text = shown(acme, acme.relayed().hold().settle_at_estimate())
    assert "Settled at estimate" in text
    assert ESTIMATED in text
    assert "user_status 200" in text
    assert (
        "How it was counted. Counted with the vocabulary of Qwen2.5. "
        "Here that is about 0.000070032 either way."
    ) in text
    assert text.count("Estimate") == 3


def test_a_test_request_is_never_charged(acme):
    exchange = acme.relayed_in_test().hold().settle()
    browser = signed_in(acme.bob)
    browser.post("/mode", {"mode": "test"})
    text = text_of(browser.get(f"/requests/{exchange.public_id}"))
    assert "A test key is never charged." in text
    assert "counted 1,024 tokens in and 333 out" in text
    assert "Nothing was held and nothing was charged." in text


# --- legs ---------------------------------------------------------------------------------------


@pytest.fixture
def told(acme):
    """A request with its transcript: a stream that the vendor closed with its usage."""
    exchange = acme.relayed(model="qwen2.5-coder-1.5b-free-g7").hold().settle()
    usage = {"prompt_tokens": 1_024, "completion_tokens": 333, "total_tokens": 1_357}
    record(exchange.row, answer=a_stream("Hello ", "there", usage=usage))
    return exchange


def test_every_leg_opens_without_scripts(acme, told):
    legs = {
        "1": "POST /v1/chat/completions",
        "2": "POST http://127.0.0.1:1234/v1/chat/completions",
        "3": "200 text/event-stream",
        "4": "200 text/event-stream",
    }
    for leg, words in legs.items():
        for view in ("chat", "json", "raw"):
            assert words in shown(acme, told, f"?leg={leg}&view={view}")


def test_what_was_changed_towards_the_vendor_has_reasons(acme, told):
    text = shown(acme, told, "?leg=2")
    assert "What Farthing changed between 1 and 2" in text
    assert "the vendor's own name for the model" in text
    assert "so that the vendor reports usage; dropped from ④, you did not ask for it" in text
    assert "the vendor's credential, never shown" in text


def test_what_was_changed_towards_the_client_has_reasons(acme, told):
    text = shown(acme, told, "?leg=4")
    assert "What Farthing changed between 3 and 4" in text
    assert "the exchange's own id" in text
    assert "the name that you asked for" in text


def test_a_body_is_a_chat_or_json_or_the_events_themselves(acme, told):
    assert "assistant Hello there" in shown(acme, told, "?leg=4&view=chat")
    assert "JSON, put together from the events" in shown(acme, told, "?leg=4&view=json")
    raw = page(acme, told, "?leg=4&view=raw")
    assert raw.count("data: {") == 4
    assert "data: [DONE]" in raw
    assert "prompt_tokens" not in raw.partition('id="leg-body"')[2].partition("</pre>")[0]


def test_headers_are_masked(acme, told):
    text = shown(acme, told)
    assert "secrets masked" in text
    assert "sk_sys_root_example_000" not in page(acme, told)


def test_a_secret_in_a_body_is_masked_everywhere(acme):
    exchange = acme.relayed().hold().settle()
    body = {"model": "m", "messages": [{"role": "user", "content": f"My key is {SECRET}"}]}
    record(exchange.row, answer=a_stream(f"It is {SECRET}"), request=orjson.dumps(body))
    for leg in "1234":
        for view in ("chat", "json", "raw"):
            assert SECRET not in page(acme, exchange, f"?leg={leg}&view={view}")


def test_a_body_is_never_markup(acme):
    exchange = acme.relayed().hold().settle()
    evil = "<script>alert(1)</script>"
    body = {"model": "m", "messages": [{"role": "user", "content": evil}]}
    record(exchange.row, answer=a_stream(evil), request=orjson.dumps(body))
    for leg in "1234":
        for view in ("chat", "json", "raw"):
            assert evil not in page(acme, exchange, f"?leg={leg}&view={view}")


def test_without_a_transcript_a_sentence_says_why(acme):
    assert NOTHING_STORED in shown(acme, acme.relayed().hold().settle())
    assert REFUSED in shown(acme, acme.relayed().refuse())
    assert "Nothing went to a vendor" in shown(acme, acme.relayed().refuse(), "?leg=2")


def test_summaries_are_shown_where_content_is_not_stored(acme):
    exchange = acme.relayed().hold().settle()
    record(exchange.row, answer=a_stream("Hello there"), policy="summaries")
    text = shown(acme, exchange)
    assert SUMMARIES_ONLY in text
    assert "user benchmark" in text
    assert "assistant Hello there" in shown(acme, exchange, "?leg=4")


# --- ways out -----------------------------------------------------------------------------------


def test_the_curl_repeats_the_request_without_a_secret(acme, told):
    html = page(acme, told)
    code = html.partition('<pre class="code" id="curl">')[2].partition("</pre>")[0]
    assert "Authorization: Bearer $FARTHING_KEY" in code
    assert "http://testserver/v1/chat/completions" in code
    body = code.partition("-d &#x27;")[2].removesuffix("&#x27;").replace("&quot;", '"')
    assert json.loads(body) == orjson.loads(REQUEST)


def test_without_a_body_there_is_nothing_to_repeat(acme):
    assert 'id="curl"' not in page(acme, acme.relayed().hold().settle())


def test_the_json_is_that_of_the_api(acme, told):
    response = signed_in(acme.bob).get(f"/requests/{told.public_id}.json")
    assert response["content-type"] == "application/json"
    shape = response.json()
    assert (shape["object"], shape["id"], shape["state"]) == (
        "request",
        told.public_id,
        "settled",
    )
    assert shape["created_at"] == f"{NOW:%Y-%m-%d}T14:15:05.000Z"
