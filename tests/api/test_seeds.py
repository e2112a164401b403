"""Two recorded exchanges, field by field: through real HTTP, benchecho and a real worker.

In the first the vendor was asked for usage and sent none. In the second it answered a stream
request with one JSON body labelled as a stream, with all-zero usage. Both are billed at estimate.
"""

import re

import pytest

from billing.ids import exchange_id_of
from gateway.exchanges.legs import legs_of
from gateway.models import Transcript
from tests.api.conftest import events, text_of
from tests.stack import until

PUBLIC_MODEL = "qwen2.5-coder-1.5b-free-g7"
ANSWER = "farthing-benchecho-fixed-response" * 8
STATUS = {
    "vendor_status": None,
    "vendor_message": None,
    "user_status": 200,
    "user_message": "vendor returned no token usage; billed at estimate",
}
USER_MESSAGE = {"content": "benchmark", "role": "user"}


@pytest.fixture
def recorded(caller):
    """Sends the seeds' request and answers what was seen and what was kept of it."""

    def run(model: str):
        alice = caller(balance="0")
        answer = alice.post(
            b'{"messages":[{"content":"benchmark","role":"user"}],"model":"%b","stream":true}'
            % model.encode(),
            headers={"Accept-Encoding": "gzip", "User-Agent": "Go-http-client/2.0"},
        )
        exchange = alice.settled(answer)
        transcript = until(Transcript.objects.filter(exchange_id=exchange.id).first)
        return alice, answer, exchange, legs_of(exchange, transcript)

    return run


def headers_of(leg) -> dict[str, str]:
    return dict(leg.headers)


def test_missing_usage(recorded) -> None:
    alice, answer, exchange, legs = recorded(PUBLIC_MODEL)

    assert exchange.message == STATUS
    request = legs.attempts[0].request
    assert request.method == "POST"
    assert request.url.endswith("/v1/chat/completions")
    assert headers_of(request)["Authorization"] == "Bearer ::keyless::"
    assert headers_of(request)["Content-Type"] == "application/json"
    assert request.body == {
        "messages": [USER_MESSAGE],
        "model": "echo-no-usage",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    response = legs.attempts[0].response
    assert headers_of(response)["Content-Type"].startswith("text/event-stream")
    assert re.fullmatch(r"chatcmpl-bench-[0-9a-f]{8}", response.body["id"])
    assert response.body["object"] == "chat.completion"
    assert response.body["model"] == "farthing-benchecho"
    assert response.body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER},
            "finish_reason": "stop",
        }
    ]
    client = legs.client_request
    assert (client.method, client.url) == ("POST", "/v1/chat/completions")
    assert headers_of(client)["User-Agent"] == "Go-http-client/2.0"
    assert headers_of(client)["Authorization"].startswith("Bearer sk_live_")
    assert alice.secret not in str(client.headers)
    assert client.body == {"messages": [USER_MESSAGE], "model": PUBLIC_MODEL, "stream": True}
    sent = legs.client_response
    assert re.fullmatch(r"chatcmpl-[0-9A-Za-z]{16,}", sent.body["id"])
    assert exchange_id_of(sent.body["id"]) == exchange.id
    assert sent.body["model"] == PUBLIC_MODEL
    assert sent.body["created"] == response.body["created"]
    assert sent.body["choices"] == response.body["choices"]
    assert headers_of(sent)["Content-Type"].startswith("text/event-stream")
    assert "no-cache" in headers_of(sent)["Cache-Control"]
    assert events(answer)[-1] == "[DONE]"
    assert text_of(events(answer)) == ANSWER


def test_zero_usage_in_one_body_labelled_as_a_stream(recorded) -> None:
    _, answer, exchange, legs = recorded("farthing-free-json-zero")

    assert exchange.message == STATUS
    assert legs.summary == {
        "system_prefix": None,
        "history_count": 1,
        "user_summary": {"text": "benchmark", "has_image": False, "has_tool_result": False},
        "assistant_summary": {"text": ANSWER[:150], "tool_calls": [], "stop_reason": "stop"},
    }
    response = legs.attempts[0].response
    zero = {
        "completion_tokens": 0,
        "prompt_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": 0},
        "total_tokens": 0,
    }
    assert headers_of(response)["Content-Type"].startswith("text/event-stream")
    assert response.body["usage"] == zero
    assert exchange.charge.vendor_usage == zero
    assert (exchange.charge.input_tokens, exchange.charge.output_tokens) == (30, 65)
    chunks = events(answer)
    assert text_of(chunks) == ANSWER
    assert chunks[-1] == "[DONE]"
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks[:-1])


@pytest.fixture(autouse=True)
def free_model(stack, committed) -> None:
    """The second seed's model is free like the first's, on the vendor model with that fault."""
    from django.utils import timezone

    from billing.models import Price
    from gateway.models import Model, Route, Vendor

    name = "farthing-free-json-zero"
    if Model.objects.filter(name=name).exists():
        return
    Price.objects.create(
        model=name,
        currency="USD",
        effective_from=timezone.now(),
        input_nanos=0,
        output_nanos=0,
    )
    vendor = Vendor.objects.get(name="benchecho")
    model = Model.objects.create(name=name, family="qwen2.5")
    Route.objects.create(model=model, vendor=vendor, vendor_model="echo-json-as-stream-zero-usage")
