"""Clients of other makers, unchanged: the same acts by each, and what the ledger says of them."""

import pytest

from tests.clients.conftest import Account, Program

PHRASE = "farthing-benchecho-fixed-response"
PROMPT_TOKENS = 6  # benchecho counts the two words of the prompt, and four for the message
INPUT_NANOS, OUTPUT_NANOS = 150, 600
LOOKED_UP = [{"name": "look_up", "arguments": {"query": "farthing"}}]
CALLS = {"openai": "tool_calls", "ai": "tool-calls", "langchain": "tool_calls"}

pytestmark = pytest.mark.stack


@pytest.fixture(
    params=[
        pytest.param("openai", marks=pytest.mark.node),
        pytest.param("ai", marks=pytest.mark.node),
        "langchain",
    ]
)
def client(request, programs) -> Program:
    return programs(request.param)


def does(client: Program, account: Account, act: str, model: str, **job):
    return client.does(act, base_url=account.base_url, secret=account.secret, model=model, **job)


def assert_charged(account: Account, output_tokens: int) -> None:
    exchange = account.exchange()
    charge = exchange.charge
    assert (charge.outcome, charge.usage_source) == ("answered", "vendor")
    assert (charge.input_tokens, charge.output_tokens) == (PROMPT_TOKENS, output_tokens)
    assert charge.charge_nanos == PROMPT_TOKENS * INPUT_NANOS + output_tokens * OUTPUT_NANOS


def assert_free(account: Account, status: int, code: str) -> None:
    """One exchange, not repeated by the client, at no charge."""
    exchange = account.exchange()
    assert (exchange.status_code, exchange.error_code) == (status, code)
    assert exchange.charge.charge_nanos == 0


def test_an_answer_is_whole_and_charged(client, account) -> None:
    alice = account()
    seen = does(client, alice, "answer", "farthing-echo")
    assert seen == {"text": PHRASE * 8, "finish": "stop", "tokens": [6, 64], "calls": []}
    assert_charged(alice, 64)


def test_a_stream_comes_in_pieces_with_its_usage_and_is_charged(client, account) -> None:
    alice = account()
    seen = does(client, alice, "stream", "farthing-echo")
    assert seen.pop("pieces") == 8
    assert seen == {"text": PHRASE * 8, "finish": "stop", "tokens": [6, 64], "calls": []}
    assert_charged(alice, 64)


@pytest.mark.parametrize("act", ["tools", "streamed_tools"])
def test_a_tool_call_arrives_with_its_arguments(client, account, act: str) -> None:
    alice = account()
    seen = does(client, alice, act, "farthing-echo-tools")
    assert (seen["calls"], seen["finish"]) == (LOOKED_UP, CALLS[client.name])
    assert_charged(alice, 8)


def test_a_structured_answer_fits_its_schema(client, account) -> None:
    alice = account()
    seen = does(client, alice, "structured", "farthing-echo-structured")
    assert seen == {"object": {"city": "farthing", "count": 1}}
    assert_charged(alice, 8)


def test_leaving_in_mid_stream_is_charged_for_what_came(client, account) -> None:
    alice = account()
    assert does(client, alice, "leave", "farthing-echo-chunks", after=3)["pieces"] >= 3
    charge = alice.exchange().charge
    assert (charge.outcome, charge.usage_source) == ("client_gone", "estimate")
    assert 0 < charge.charge_nanos < PROMPT_TOKENS * INPUT_NANOS + 50 * 8 * OUTPUT_NANOS


def test_a_client_that_waits_no_longer_owes_nothing(client, account) -> None:
    alice = account()
    seen = does(client, alice, "answer", "farthing-echo-slow", timeout_ms=300, retries=0)
    assert "Timeout" in seen["error"]["name"] or seen["error"]["name"] == "DOMException"
    charge = alice.exchange().charge
    assert (charge.outcome, charge.charge_nanos) == ("client_gone", 0)


# --- errors: the client's own, with our status and code; none is sent twice --------------------

NAMES = {
    "openai": {
        401: "AuthenticationError",
        402: "APIError",
        404: "NotFoundError",
        429: "RateLimitError",
        504: "InternalServerError",
    },
    "ai": dict.fromkeys((401, 402, 404, 429, 504), "APICallError"),
    "langchain": {
        401: "OpenAIAuthenticationError",
        402: "APIStatusError",
        404: "OpenAIModelNotFoundError",
        429: "OpenAIRateLimitError",
        504: "OpenAIAPIError",
    },
}


def assert_error(seen, client: Program, status: int, code: str) -> None:
    assert seen["error"].pop("name").removeprefix("_") == NAMES[client.name][status]
    assert seen == {"error": {"status": status, "code": code}}


@pytest.mark.parametrize("act", ["answer", "stream"])
def test_a_bad_key(client, account, act: str) -> None:
    alice = account()
    alice.secret = alice.secret[:-1] + ("a" if alice.secret[-1] != "a" else "b")
    seen = does(client, alice, act, "farthing-echo")
    assert_error(seen, client, 401, "invalid_api_key")


@pytest.mark.parametrize("act", ["answer", "stream"])
def test_an_unknown_model(client, account, act: str) -> None:
    alice = account()
    seen = does(client, alice, act, "no-such-model")
    assert_error(seen, client, 404, "model_not_found")
    assert_free(alice, 404, "model_not_found")


@pytest.mark.parametrize("act", ["answer", "stream"])
def test_an_empty_wallet(client, account, act: str) -> None:
    alice = account(balance="0")
    seen = does(client, alice, act, "farthing-echo")
    assert_error(seen, client, 402, "insufficient_balance")
    assert_free(alice, 402, "insufficient_balance")


def test_too_many_requests(client, account) -> None:
    alice = account(requests_per_minute=1)
    assert "error" not in does(client, alice, "answer", "farthing-echo")
    seen = does(client, alice, "answer", "farthing-echo", retries=0)
    assert_error(seen, client, 429, "rate_limit_exceeded")
    first, second = sorted(alice.exchanges(2), key=lambda exchange: exchange.created_at)
    assert first.charge.charge_nanos == PROMPT_TOKENS * INPUT_NANOS + 64 * OUTPUT_NANOS
    assert (second.status_code, second.charge.charge_nanos) == (429, 0)


def test_a_vendor_that_is_too_slow(client, account, hasty: str) -> None:
    """It may have billed: where a client obeys `x-should-retry`, it asks once."""
    alice = account()
    obeys = {"retries": 0} if client.name == "ai" else {}
    seen = does(client, alice, "answer", hasty, **obeys)
    assert_error(seen, client, 504, "upstream_timeout")
    assert_free(alice, 504, "upstream_timeout")


def test_a_stream_that_breaks_is_an_error_and_is_not_repeated(client, account) -> None:
    alice = account()
    assert "error" in does(client, alice, "stream", "farthing-echo-cut")
    exchange = alice.exchange()
    assert exchange.error_code == "upstream_failed_mid_response"
    assert exchange.charge.charge_nanos > 0
