"""The relay over real HTTP: what a client sees, and what it leaves in the ledger."""

import http.client
import json
import random

import pytest
import requests

from billing.audit import audit
from billing.estimation import count_prompt, prompt_bound
from billing.ids import completion_id
from billing.limits import set_limit
from billing.models import Exchange, LimitPeriod
from billing.money import text_from_nanos
from gateway.models import Transcript
from keys.models import KeyUse
from keys.services import revoke_key
from tests.api.conftest import events, text_of
from tests.stack import until

ANSWER = "farthing-benchecho-fixed-response" * 8
ESTIMATED = "vendor returned no token usage; billed at estimate"


def test_a_whole_answer_is_relayed_and_charged_to_the_nano(caller) -> None:
    alice = caller(balance="10")

    answer = alice.chat("farthing-echo")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert body["choices"][0]["message"]["content"] == ANSWER
    assert body["model"] == "farthing-echo"
    exchange = alice.settled(answer)
    assert body["id"] == completion_id(exchange.id)
    assert exchange.charge.usage_source == "vendor"
    usage = body["usage"]
    price = exchange.price
    expected = (usage["prompt_tokens"] * price.input_nanos + 500_000) // 1_000_000 + (
        usage["completion_tokens"] * price.output_nanos + 500_000
    ) // 1_000_000
    assert exchange.charge.charge_nanos == expected
    assert answer.headers["x-farthing-cost"] == f"{expected / 1e9:.9f}"
    assert alice.balance() == (10_000_000_000 - expected, 0)


def test_a_stream_is_a_stream_without_the_usage_chunk_nobody_asked_for(caller) -> None:
    alice = caller()

    answer = alice.chat("farthing-echo", stream=True)

    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "no-cache" in answer.headers["cache-control"]
    chunks = events(answer)
    assert chunks[-1] == "[DONE]"
    assert text_of(chunks) == ANSWER
    assert all(chunk["model"] == "farthing-echo" for chunk in chunks[:-1])
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks[:-1])
    assert alice.settled(answer).charge.usage_source == "vendor"


def test_a_client_that_asks_gets_one_usage_chunk_with_its_cost(caller) -> None:
    alice = caller()

    answer = alice.chat("farthing-echo", stream=True, stream_options={"include_usage": True})

    *_, usage_chunk, done = events(answer)
    assert done == "[DONE]"
    assert usage_chunk["choices"] == []
    exchange = alice.settled(answer)
    assert usage_chunk["usage"]["cost"] == f"{exchange.charge.charge_nanos / 1e9:.9f}"
    assert usage_chunk["usage"]["cost_currency"] == "USD"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        "farthing-echo-no-usage",
        "farthing-echo-zero-usage",
        "farthing-echo-json-as-stream",
        "farthing-echo-json-as-stream-zero-usage",
    ],
)
def test_missing_usage_is_counted_by_a_worker_and_told(caller, model: str, stream: bool) -> None:
    alice = caller()

    answer = alice.chat(model, "benchmark", stream=stream)

    assert answer.status_code == 200
    if stream:
        chunks = events(answer)
        assert (text_of(chunks), chunks[-1]) == (ANSWER, "[DONE]")
    else:
        assert answer.json()["choices"][0]["message"]["content"] == ANSWER
    exchange = alice.settled(answer)
    assert exchange.charge.usage_source == "estimate"
    assert (exchange.charge.input_tokens, exchange.charge.output_tokens) == (30, 65)
    assert exchange.message == {
        "vendor_status": None,
        "vendor_message": None,
        "user_status": 200,
        "user_message": ESTIMATED,
    }
    assert alice.balance()[1] == 0


def test_many_estimates_are_one_message_with_a_count(caller) -> None:
    from billing.models import Message

    alice = caller()
    answers = [alice.chat("farthing-echo-no-usage") for _ in range(3)]
    for answer in answers:
        alice.settled(answer)

    (message,) = Message.objects.filter(tenant=alice.tenant)
    assert (message.user_message, message.count, message.user_status) == (ESTIMATED, 3, 200)


def test_a_stream_that_is_cut_ends_with_an_error_event_and_is_charged_for_what_came(caller) -> None:
    alice = caller()

    answer = alice.chat("farthing-echo-cut", "benchmark", stream=True)

    chunks = events(answer)
    assert chunks[-1]["error"]["code"] == "upstream_failed_mid_response"
    assert "[DONE]" not in chunks
    exchange = alice.settled(answer)
    assert (exchange.charge.outcome, exchange.charge.usage_source) == ("partial", "estimate")
    assert 0 < exchange.charge.output_tokens < 65


@pytest.mark.parametrize(
    ("model", "status", "code", "retry_after"),
    [
        ("farthing-echo-429", 429, "upstream_rate_limited", "30"),
        ("farthing-echo-500", 502, "upstream_unavailable", "2"),
        ("farthing-echo-401", 502, "upstream_credential_rejected", None),
        ("farthing-echo-error-200", 503, "upstream_unavailable", "2"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_vendor_that_fails_before_any_byte_costs_nothing(
    caller,
    model: str,
    status: int,
    code: str,
    retry_after: str | None,
    stream: bool,
) -> None:
    alice = caller()

    answer = alice.chat(model, stream=stream)

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers.get("retry-after") == retry_after
    assert answer.headers["content-type"] == "application/json"
    exchange = alice.settled(answer)
    assert (exchange.charge.charge_nanos, exchange.charge.outcome) == (0, "failed")
    assert alice.balance() == (10_000_000_000, 0)


def test_a_failed_route_is_followed_by_the_next_and_charged_once(caller) -> None:
    alice = caller()

    answer = alice.chat("farthing-echo-failover")

    assert answer.status_code == 200
    exchange = alice.settled(answer)
    assert len(exchange.attempts) == 2
    assert exchange.attempts[0]["error"] == "upstream_unavailable"
    assert exchange.charge.charge_nanos > 0


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer sk_live_nothing", "Basic abc", "Bearer sk-live-SECRET123"],
)
def test_a_bad_key_is_401_and_is_not_repeated_to_anyone(caller, stack, authorization: str) -> None:
    alice = caller()

    answer = alice.chat("farthing-echo", headers={"Authorization": authorization})

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["x-should-retry"] == "false"
    assert "SECRET123" not in answer.text
    assert "SECRET123" not in (stack.folder / "gateway.log").read_text()


@pytest.mark.parametrize("scheme", ["bearer {}", "BEARER {}", "Bearer   {}", "Bearer {} \t"])
def test_the_scheme_is_read_kindly(caller, scheme: str) -> None:
    alice = caller()
    answer = alice.chat("farthing-echo", headers={"Authorization": scheme.format(alice.secret)})
    assert answer.status_code == 200


def test_x_api_key_is_a_way_in_too(caller) -> None:
    alice = caller()
    answer = requests.post(
        f"{alice.base_url}/v1/chat/completions",
        json={"model": "farthing-echo", "messages": [{"role": "user", "content": "hi"}]},
        headers={"x-api-key": alice.secret},
        timeout=20,
    )
    assert answer.status_code == 200


def test_a_revoked_key_is_refused_within_a_second(caller) -> None:
    alice = caller()
    assert alice.chat("farthing-echo").status_code == 200

    revoke_key(alice.tenant, alice.key.public_id, actor="tests")

    until(lambda: alice.chat("farthing-echo").status_code == 401, seconds=1.0)


def test_a_key_changed_by_plain_sql_is_refused_too(caller) -> None:
    from django.db import connection

    alice = caller()
    assert alice.chat("farthing-echo").status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("UPDATE keys_apikey SET revoked_at = now() WHERE id = %s", [alice.key.pk])
    until(lambda: alice.chat("farthing-echo").status_code == 401, seconds=1.0)


def test_a_suspended_tenant_is_403(caller) -> None:
    alice = caller()
    assert alice.chat("farthing-echo").status_code == 200
    alice.tenant.state = "suspended"
    alice.tenant.save(update_fields=["state"])
    until(lambda: alice.chat("farthing-echo").status_code == 403, seconds=1.0)
    assert alice.chat("farthing-echo").json()["error"]["code"] == "tenant_suspended"


def test_a_model_that_the_key_may_not_use_is_403_and_reaches_no_vendor(caller) -> None:
    alice = caller(allowed_models=["farthing-echo-tools"])
    answer = alice.chat("farthing-echo", fallbacks=["farthing-echo-tools"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model_not_allowed")
    assert alice.settled(answer).attempts == []


def test_an_unknown_model_is_404_and_is_recorded_at_zero(caller) -> None:
    alice = caller()
    answer = alice.chat("no-such-model")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    exchange = alice.settled(answer)
    assert (exchange.status_code, exchange.error_code) == (404, "model_not_found")
    assert (exchange.charge.charge_nanos, exchange.charge.outcome) == (0, "refused")


def test_an_address_outside_the_keys_ranges_is_403_whatever_the_client_claims(caller) -> None:
    alice = caller(allowed_ips=["10.0.0.5"])
    answer = alice.chat("farthing-echo", headers={"X-Forwarded-For": "10.0.0.5"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ip_not_allowed")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"null", 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"model":"farthing-echo","messages":"hi"}', 400),
        (b'{"model":["a"],"messages":[{"role":"user","content":"x"}]}', 400),
        (b'{"model":"farthing-echo","messages":[{"role":"user","content":"x"}],"top_p":NaN}', 400),
        (b'{"model":"\xff"}', 400),
        (b'{"model":"a","messages":[{"role":"user","content":"\\ud83d"}]}', 400),
        (
            b'{"model":"farthing-echo","messages":[{"role":"user","content":"x"}],"x":'
            + b"[" * 20_000
            + b"]" * 20_000
            + b"}",
            400,
        ),
        (b'{"model":"farthing-echo","model":"a","messages":[{"role":"user","content":"x"}]}', 400),
    ],
)
def test_a_hostile_body_is_a_clear_4xx(caller, body: bytes, status: int) -> None:
    alice = caller()
    answer = alice.post(body)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert alice.balance() == (10_000_000_000, 0)


def test_a_body_above_the_limit_is_413_before_it_is_read(caller) -> None:
    alice = caller()
    connection = http.client.HTTPConnection(alice.base_url.removeprefix("http://"), timeout=10)
    connection.putrequest("POST", "/v1/chat/completions")
    connection.putheader("Authorization", f"Bearer {alice.secret}")
    connection.putheader("Content-Length", str(60 * 1024 * 1024))
    connection.endheaders(b"{")
    answer = connection.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["error"]["code"] == "request_too_large"
    connection.close()


def test_the_client_cannot_choose_where_its_request_goes(caller) -> None:
    alice = caller()
    answer = alice.chat("farthing-echo", api_base="http://169.254.169.254/", api_key="x")
    assert answer.status_code == 200


def test_a_nul_in_a_text_is_relayed_and_stored(caller) -> None:
    alice = caller()
    answer = alice.chat("farthing-echo", "a\x00b", user="c\x00d")
    assert answer.status_code == 200
    exchange = alice.settled(answer)
    assert until(Transcript.objects.filter(exchange_id=exchange.id).first)


def test_an_empty_wallet_is_402_without_a_retry(caller) -> None:
    alice = caller(balance="0")
    answer = alice.chat("farthing-echo")
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "insufficient_balance")
    assert answer.headers["x-should-retry"] == "false"
    assert alice.settled(answer).hold_nanos == 0


def test_a_request_that_could_cost_more_than_there_is_is_402(caller) -> None:
    alice = caller(balance="0.000001")
    answer = alice.chat("farthing-echo", max_tokens=1000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "estimate_exceeds_balance")


SYLLABLES = ("inter", "national", "counter", "under", "stand", "micro", "scope", "able")
INPUT_NANOS, OUTPUT_NANOS = 150, 600  # a token, of farthing-echo


def loose() -> tuple[str, int, int]:
    """A text that no process has met, what it counts as a prompt, and how it is bounded."""
    text = "".join(random.choice(SYLLABLES) for _ in range(6_000))
    body = {"messages": [{"role": "user", "content": text}]}
    how = {"model": "echo", "family": "openai-o200k"}
    counted, bound = count_prompt(body, **how).tokens, prompt_bound(body, **how)
    assert bound > 2 * counted
    return text, counted, bound


def test_a_prompt_whose_bound_alone_is_too_dear_is_counted_and_served(caller) -> None:
    text, counted, bound = loose()
    enough = counted * INPUT_NANOS + 10 * OUTPUT_NANOS + 100
    assert enough < bound * INPUT_NANOS
    alice = caller(balance=text_from_nanos(enough))
    answer = alice.chat("farthing-echo", text, max_tokens=10)
    assert answer.status_code == 200
    assert enough - 100 < alice.settled(answer).hold_nanos <= enough
    assert alice.balance()[1] == 0


def test_a_prompt_whose_count_is_too_dear_is_refused_as_it_was_bounded(caller) -> None:
    text, counted, _ = loose()
    balance = counted * INPUT_NANOS * 9 // 10
    alice = caller(balance=text_from_nanos(balance))
    answer = alice.chat("farthing-echo", text, max_tokens=10)
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "estimate_exceeds_balance")
    assert alice.settled(answer).hold_nanos == 0
    assert alice.balance() == (balance, 0)


def test_a_spend_limit_refuses_and_says_which_its_size_and_its_reset(caller) -> None:
    alice = caller()
    set_limit(alice.tenant, LimitPeriod.DAY, 1_000, actor="tests", key=alice.key)
    answer = alice.chat("farthing-echo", max_tokens=100)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (402, "key_limit_reached")
    assert error["message"].startswith(
        "The spend limit of this key (day) is reached: 0.000001000, of which 0.000000000 is spent"
    )
    assert "It resets at " in error["message"]
    assert alice.balance() == (10_000_000_000, 0)


def test_the_hold_counts_every_choice(caller) -> None:
    alice = caller()
    one = alice.chat("farthing-echo", max_completion_tokens=1000)
    eight = alice.chat("farthing-echo", max_completion_tokens=1000, n=8)
    price = alice.settled(one).price
    difference = alice.settled(eight).hold_nanos - alice.settled(one).hold_nanos
    assert difference == 7 * 1000 * price.output_nanos // 1_000_000


def test_a_free_model_is_served_without_money(caller) -> None:
    alice = caller(balance="0")
    answer = alice.chat("qwen2.5-coder-1.5b-free-g7", stream=True)
    assert answer.status_code == 200
    exchange = alice.settled(answer)
    assert (exchange.charge.charge_nanos, exchange.charge.output_tokens) == (0, 65)


def test_a_test_key_gets_benchecho_and_is_never_charged(caller) -> None:
    alice = caller(balance="0", kind="test")
    answer = alice.chat("farthing-echo")
    assert answer.status_code == 200
    exchange = alice.settled(answer)
    assert (exchange.is_test, exchange.charge.charge_nanos) == (True, 0)
    assert alice.balance() == (0, 0)


def test_requests_a_minute_are_limited_and_said(caller) -> None:
    alice = caller(requests_per_minute=2)
    first, second, third = (alice.chat("farthing-echo") for _ in range(3))
    assert [first.status_code, second.status_code, third.status_code] == [200, 200, 429]
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert third.json()["error"]["code"] == "rate_limit_exceeded"
    assert third.headers["x-should-retry"] == "true"
    assert 1 <= int(third.headers["retry-after"]) <= 60


def test_a_slot_is_given_back_after_a_failure(caller) -> None:
    alice = caller(concurrent_requests=1)
    for _ in range(3):
        assert alice.chat("farthing-echo-500").status_code == 502
        until(lambda: alice.chat("farthing-echo").status_code == 200, seconds=5)


def test_the_clients_own_id_is_stored_and_echoed_only_if_it_is_harmless(caller) -> None:
    alice = caller()
    good = alice.chat("farthing-echo", headers={"X-Client-Request-Id": "run-7:step.2"})
    bad = alice.chat("farthing-echo", headers={"X-Client-Request-Id": "a b" * 100})
    assert good.headers["x-client-request-id"] == "run-7:step.2"
    assert alice.settled(good).client_request_id == "run-7:step.2"
    assert "x-client-request-id" not in bad.headers


def test_two_calls_with_one_request_id_are_two_charges(caller) -> None:
    alice = caller()
    for _ in range(2):
        alice.settled(alice.chat("farthing-echo", headers={"X-Request-Id": "abc"}))
    assert Exchange.objects.filter(tenant_id=alice.tenant.pk).count() == 2


def test_nothing_of_the_clients_headers_is_stored_or_forwarded(caller) -> None:
    alice = caller()
    answer = alice.chat(
        "farthing-echo",
        headers={
            "api-key": "CANARY-1",
            "x-goog-api-key": "CANARY-2",
            "Cookie": "session=CANARY-3",
            "Proxy-Authorization": "Basic CANARY-4",
            "X-Secret": "CANARY-5",
        },
    )
    exchange = alice.settled(answer)
    transcript = until(Transcript.objects.filter(exchange_id=exchange.id).first)
    assert "CANARY" not in json.dumps(transcript.legs)
    assert alice.secret not in json.dumps(transcript.legs)


def test_the_last_use_of_a_key_is_written_apart(caller) -> None:
    alice = caller()
    alice.chat("farthing-echo")
    assert until(KeyUse.objects.filter(key=alice.key).first).last_used_at is not None


def test_the_ledger_is_clean_after_all_that(caller) -> None:
    caller()
    report = audit()
    assert report.differences == ()
