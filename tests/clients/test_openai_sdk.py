"""The official SDK, unchanged: it must not be able to tell Farthing from the real thing."""

import contextlib
import json

import openai
import pydantic
import pytest

from tests.stack import until

ANSWER = "farthing-benchecho-fixed-response" * 8
MESSAGES = [{"role": "user", "content": "Say hello."}]
LOOK_UP = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object"}},
}


@pytest.fixture
def sdk(stack, committed, world):
    with contextlib.ExitStack() as clients:

        def make(balance: str = "10", secret: str | None = None, **options) -> openai.OpenAI:
            secret = secret or world.key(world.tenant(balance=balance)).secret
            options = {"timeout": 20, **options}
            client = openai.OpenAI(base_url=f"{stack.base_url}/v1", api_key=secret, **options)
            return clients.enter_context(client)

        yield make


def test_a_completion(sdk) -> None:
    answer = sdk().chat.completions.create(model="farthing-echo", messages=MESSAGES)
    assert answer.choices[0].message.content == ANSWER
    assert answer.model == "farthing-echo"
    assert answer.usage.completion_tokens == 64
    assert answer.id.startswith("chatcmpl-")


def test_a_stream(sdk) -> None:
    stream = sdk().chat.completions.create(model="farthing-echo", messages=MESSAGES, stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_with_usage(sdk) -> None:
    stream = sdk().chat.completions.create(
        model="farthing-echo",
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
    )
    *_, last = stream
    assert (last.choices, last.usage.completion_tokens) == ([], 64)


def test_one_body_for_a_stream_is_a_stream(sdk) -> None:
    stream = sdk().chat.completions.create(
        model="farthing-echo-json-as-stream", messages=MESSAGES, stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == ANSWER


def test_a_tool_call(sdk) -> None:
    answer = sdk().chat.completions.create(
        model="farthing-echo-tools",
        messages=MESSAGES,
        tools=[LOOK_UP],
    )
    (call,) = answer.choices[0].message.tool_calls
    assert isinstance(json.loads(call.function.arguments), dict)
    assert answer.choices[0].finish_reason == "tool_calls"


def test_a_streamed_tool_call(sdk) -> None:
    with sdk().chat.completions.stream(
        model="farthing-echo-tools", messages=MESSAGES, tools=[LOOK_UP]
    ) as stream:
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("look_up", '{"query": "farthing"}')


def test_a_structured_answer_is_parsed(sdk) -> None:
    class Place(pydantic.BaseModel):
        city: str
        count: int

    answer = sdk().chat.completions.parse(
        model="farthing-echo-structured", messages=MESSAGES, response_format=Place
    )
    assert answer.choices[0].message.parsed == Place(city="farthing", count=1)


def test_a_client_that_waits_no_longer_owes_nothing(sdk, account) -> None:
    alice = account()
    client = sdk(secret=alice.secret, timeout=0.3, max_retries=0)
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="farthing-echo-slow", messages=MESSAGES)
    charge = alice.exchange().charge
    assert (charge.outcome, charge.charge_nanos) == ("client_gone", 0)


def test_a_vendor_that_is_too_slow_is_asked_once(sdk, account, hasty) -> None:
    """It may have billed, so the SDK is told not to repeat what it repeats otherwise."""
    alice = account()
    with pytest.raises(openai.InternalServerError) as refusal:
        sdk(secret=alice.secret).chat.completions.create(model=hasty, messages=MESSAGES)
    assert (refusal.value.status_code, refusal.value.code) == (504, "upstream_timeout")
    assert alice.exchange().status_code == 504


def test_a_429_is_waited_out_as_we_say_and_then_answered(sdk, account) -> None:
    alice = account(concurrent_requests=1)
    running = sdk(secret=alice.secret).chat.completions.create(
        model="farthing-echo-chunks", messages=MESSAGES, stream=True
    )
    next(running)
    statuses = []

    def note(response) -> None:
        statuses.append((response.status_code, response.headers.get("retry-after")))
        running.close()

    with openai.DefaultHttpxClient(event_hooks={"response": [note]}) as http_client:
        client = sdk(secret=alice.secret, http_client=http_client)
        answer = client.chat.completions.create(model="farthing-echo", messages=MESSAGES)
    assert answer.choices[0].message.content == ANSWER
    assert statuses == [(429, "1"), (200, None)]


def test_a_bad_key_raises_authentication_error(sdk) -> None:
    with pytest.raises(openai.AuthenticationError) as refusal:
        sdk(secret="sk_live_wrong").chat.completions.create(
            model="farthing-echo", messages=MESSAGES
        )
    assert refusal.value.code == "invalid_api_key"


def test_an_unknown_model_raises_not_found(sdk) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        sdk().chat.completions.create(model="nope", messages=MESSAGES)
    assert refusal.value.code == "model_not_found"


def test_a_bad_request_raises_bad_request(sdk) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        sdk().chat.completions.create(model="farthing-echo", messages=[])
    assert refusal.value.param == "messages"


def test_an_empty_wallet_is_a_402_without_retries(sdk, world) -> None:
    from billing.models import Exchange

    tenant = world.tenant(balance="0")
    client = sdk(secret=world.key(tenant).secret)
    with pytest.raises(openai.APIStatusError) as refusal:
        client.chat.completions.create(model="farthing-echo", messages=MESSAGES)
    assert (refusal.value.status_code, refusal.value.code) == (402, "insufficient_balance")
    assert until(Exchange.objects.filter(tenant_id=tenant.pk).count) == 1


def test_a_stream_that_breaks_raises_and_is_not_repeated(sdk, world) -> None:
    from billing.models import Exchange

    tenant = world.tenant()
    client = sdk(secret=world.key(tenant).secret)
    with pytest.raises(openai.APIError):
        list(
            client.chat.completions.create(
                model="farthing-echo-cut", messages=MESSAGES, stream=True
            )
        )
    assert Exchange.objects.filter(tenant_id=tenant.pk).count() == 1


def test_leaving_in_mid_stream_is_charged_for_what_came(sdk, world) -> None:
    from billing.models import Exchange

    tenant = world.tenant()
    client = sdk(secret=world.key(tenant).secret)
    stream = client.chat.completions.create(
        model="farthing-echo-chunks", messages=MESSAGES, stream=True
    )
    for _ in range(3):
        next(stream)
    stream.close()

    settled = Exchange.objects.select_related("charge").filter(tenant_id=tenant.pk, state="settled")
    exchange = until(settled.first)
    assert (exchange.charge.outcome, exchange.charge.usage_source) == ("client_gone", "estimate")
    assert exchange.charge.charge_nanos > 0
