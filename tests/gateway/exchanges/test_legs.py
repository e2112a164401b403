import dataclasses

import orjson
import pytest

from billing.ids import completion_id
from gateway.exchanges import legs as texts
from gateway.exchanges.legs import legs_of
from gateway.exchanges.record import AnswerLeg, Legs, VendorLeg
from tests.gateway.exchanges.made import (
    FIXED_ANSWER,
    MODEL,
    REQUEST,
    URL,
    VENDOR_HEADERS,
    VENDOR_MODEL,
    Maker,
    a_stream,
    record,
)

ZERO_USAGE = {
    "completion_tokens": 0,
    "prompt_tokens": 0,
    "prompt_tokens_details": {"cached_tokens": 0},
    "total_tokens": 0,
}
MESSAGE = {"role": "assistant", "content": FIXED_ANSWER}


@pytest.fixture
def maker(world) -> Maker:
    return Maker(world.tenant())


def a_completion(**members):
    choice = {"finish_reason": "stop", "index": 0, "message": MESSAGE}
    names = {"id": "chatcmpl-bench-d17", "model": "gaxi-benchecho", "object": "chat.completion"}
    return {"choices": [choice], "created": 1_722_567_848, **names, **members}


def test_the_exchange_without_usage_shows_its_four_legs(maker) -> None:
    exchange = maker.settled()
    view = legs_of(exchange, record(exchange, answer=a_stream(*[FIXED_ANSWER[:34]] * 8)))

    assert view.client_request.method == "POST"
    assert view.client_request.url == "/v1/chat/completions"
    assert view.client_request.body == orjson.loads(REQUEST)
    assert ("Authorization", "Bearer ••••") in view.client_request.headers
    assert ("User-Agent", "Go-http-client/2.0") in view.client_request.headers
    (attempt,) = view.attempts
    assert (attempt.request.method, attempt.request.url) == ("POST", URL)
    assert attempt.request.body == {
        "messages": [{"content": "benchmark", "role": "user"}],
        "model": VENDOR_MODEL,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert ("Authorization", "Bearer ::keyless::") in attempt.request.headers
    assert ("Host", "127.0.0.1:1234") in attempt.request.headers
    assert attempt.response.body["object"] == "chat.completion"
    assert attempt.response.body["choices"] == [
        {"index": 0, "message": MESSAGE, "finish_reason": "stop"}
    ]
    assert attempt.response.raw.startswith('data: {"id":"chatcmpl-bench"')
    assert attempt.response.is_stream
    answer = view.client_response
    assert answer.body["id"] == completion_id(exchange.id)
    assert answer.body["model"] == MODEL
    assert answer.body["choices"] == attempt.response.body["choices"]
    assert "usage" not in answer.body
    assert answer.raw.endswith("data: [DONE]\n\n")
    assert (attempt.request.at_ms, attempt.response.at_ms, answer.at_ms) == (4.3, 20.5, 21.0)


def test_the_exchange_with_zero_usage_in_one_json_body_is_shown_and_summarised(maker) -> None:
    exchange = maker.settled()
    answer = orjson.dumps(a_completion(usage=ZERO_USAGE))
    view = legs_of(exchange, record(exchange, answer=answer))

    (attempt,) = view.attempts
    assert attempt.response.body == a_completion(usage=ZERO_USAGE)
    assert not attempt.response.is_stream
    assert view.client_response.is_stream
    assert view.client_response.body == {
        "id": completion_id(exchange.id),
        "object": "chat.completion",
        "created": 1_722_567_848,
        "model": MODEL,
        "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
    }
    assert view.summary == {
        "system_prefix": None,
        "history_count": 1,
        "user_summary": {"text": "benchmark", "has_image": False, "has_tool_result": False},
        "assistant_summary": {
            "text": FIXED_ANSWER[:150],
            "tool_calls": [],
            "stop_reason": "stop",
        },
    }


def test_a_client_that_asked_sees_usage_with_its_cost(maker) -> None:
    exchange = maker.settled()
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "cost": "0.000000001"}
    answer = AnswerLeg(200, [], is_stream=True, wants_usage=True, usage=usage)
    request = orjson.dumps({**orjson.loads(REQUEST), "stream_options": {"include_usage": True}})
    transcript = record(exchange, request=request, answer=a_stream("hi", usage=usage))
    transcript.legs["answer"] = answer.to_json()
    assert legs_of(exchange, transcript).client_response.body["usage"] == usage


def test_an_error_of_ours_is_shown_as_it_was_sent(maker) -> None:
    exchange = maker.settled(outcome="failed", facts={"status_code": 503})
    error = b'{"error":{"message":"x","type":"upstream_error","param":null,"code":"y"}}'
    view = legs_of(exchange, record(exchange, answer=b"<html>busy</html>", error=error))
    assert view.client_response.body == orjson.loads(error)
    assert view.attempts[0].response.body is None
    assert view.attempts[0].response.raw == "<html>busy</html>"


def test_a_cut_stream_ends_for_the_client_in_an_error_event(maker) -> None:
    exchange = maker.settled(outcome="partial")
    transcript = record(exchange, answer=a_stream("one", "two").rsplit(b"data: {", 1)[0])
    transcript.legs["vendor"][0]["error"] = "connection lost"
    view = legs_of(exchange, transcript)
    assert view.client_response.body["choices"][0]["message"]["content"] == "onetwo"
    assert '"code":"upstream_failed_mid_response"' in view.client_response.raw
    assert "[DONE]" not in view.client_response.raw


def test_a_client_that_left_got_no_end(maker) -> None:
    exchange = maker.settled(outcome="client_gone", facts={"error_code": "client_gone"})
    view = legs_of(exchange, record(exchange, answer=a_stream("one").rsplit(b"data: {", 1)[0]))
    assert "error" not in view.client_response.raw
    assert "[DONE]" not in view.client_response.raw


def test_earlier_attempts_keep_what_was_sent_and_say_what_came(maker) -> None:
    exchange = maker.settled()
    first = VendorLeg(1, "north", "n", URL, include_usage=True, headers=VENDOR_HEADERS)
    busy = dataclasses.replace(first, number=2, status=503, response_size_bytes=9)
    lost = dataclasses.replace(first, error="connection failed")
    last = dataclasses.replace(first, number=3, status=200, response_size_bytes=9)
    transcript = record(exchange, answer=a_stream("hi"), vendor=[lost, busy, last])
    view = legs_of(exchange, transcript)
    assert [attempt.response.absence for attempt in view.attempts] == [
        "No byte came back: connection failed.",
        texts.LAST_ONLY,
        None,
    ]
    assert view.attempts[0].request.body["model"] == "n"


@pytest.mark.parametrize(
    ("policy", "absence"), [("summaries", texts.SUMMARIES_ONLY), ("content", None)]
)
def test_a_body_that_is_not_kept_says_why(maker, policy: str, absence: str | None) -> None:
    exchange = maker.settled()
    view = legs_of(exchange, record(exchange, answer=a_stream("hi"), policy=policy))
    assert view.client_request.absence == absence
    assert view.client_response.absence == absence
    assert view.summary["user_summary"]["text"] == "benchmark"


def test_what_a_vendor_said_to_our_account_is_for_staff(maker) -> None:
    exchange = maker.settled(outcome="failed")
    transcript = record(exchange, answer=b'{"error": "CANARY is no key"}', error=b'{"error": {}}')
    transcript.legs["vendor"][0]["status"] = 401
    (attempt,) = legs_of(exchange, transcript).attempts
    assert attempt.response.absence == texts.OUR_ACCOUNT
    assert (attempt.response.status, attempt.response.body, attempt.response.raw) == (None,) * 3


def test_nothing_stored_says_why(maker) -> None:
    exchange = maker.settled()
    assert legs_of(exchange, None).client_request.absence == texts.NOTHING_STORED
    refused = maker.refused()
    assert legs_of(refused, None).client_response.absence == texts.REFUSED
    running = type(exchange).objects.get(id=maker.held().exchange_id)
    assert legs_of(running, None).client_request.absence == texts.NOT_WRITTEN_YET


def test_a_client_that_left_before_an_answer_has_no_fourth_leg(maker) -> None:
    exchange = maker.settled()
    transcript = record(exchange, answer=b"", vendor=())
    stored = Legs.from_json(transcript.legs)
    transcript.legs = dataclasses.replace(stored, answer=None).to_json()
    view = legs_of(exchange, transcript)
    assert view.client_response.absence == texts.CLIENT_LEFT
    assert view.attempts == ()


def test_raw_text_is_bounded(maker, monkeypatch) -> None:
    monkeypatch.setattr(texts, "RAW_CHARS", 10)
    exchange = maker.settled()
    leg = legs_of(exchange, record(exchange, answer=a_stream("hi"))).client_request
    assert (len(leg.raw), leg.is_raw_cut) == (10, True)
