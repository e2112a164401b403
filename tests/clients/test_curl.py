"""curl, in the versions of HTTP that it speaks or offers without TLS."""

import json
import subprocess
from dataclasses import dataclass

import pytest

from tests.clients.conftest import Account

TIMED_OUT = 28  # curl's exit code
PHRASE = "farthing-benchecho-fixed-response"
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}

pytestmark = [
    pytest.mark.stack,
    pytest.mark.parametrize("version", ["--http1.0", "--http1.1", "--http2"]),
]


@dataclass(frozen=True)
class Answer:
    code: int
    head: str
    body: str

    @property
    def status(self) -> int:
        return int(self.head.split(" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        pairs = (line.partition(":") for line in self.head.splitlines()[1:])
        return {name.lower(): value.strip() for name, _, value in pairs}

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        *events, rest = self.body.split("\n\n")
        assert rest == ""
        return [event.removeprefix("data: ") for event in events]


def command(version: str, account: Account, model: str, *options: str, **body) -> list[str]:
    body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], **body}
    return [
        *("curl", version, "--silent", "--no-buffer", "--include", "--data", json.dumps(body)),
        *("--header", f"Authorization: Bearer {account.secret}"),
        *("--header", "Content-Type: application/json", *options),
        f"{account.base_url}/chat/completions",
    ]


def curl(*arguments, **body) -> Answer:
    done = subprocess.run(command(*arguments, **body), capture_output=True, timeout=20, check=False)
    head, _, text = done.stdout.decode().partition("\r\n\r\n")
    return Answer(done.returncode, head, text)


def test_an_answer(version, account) -> None:
    alice = account()
    answer = curl(version, alice, "farthing-echo")
    assert (answer.code, answer.status) == (0, 200)
    assert answer.json["choices"][0]["message"]["content"] == PHRASE * 8
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert ("connection" in answer.headers) is (version == "--http1.0")
    assert alice.exchange().charge.charge_nanos == 39_300


def test_a_stream_is_chunked_only_where_chunks_are_known(version, account) -> None:
    alice = account()
    answer = curl(version, alice, "farthing-echo", "--raw", stream=True)
    assert (answer.code, answer.status) == (0, 200)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    if version != "--http1.0":
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.body.endswith("\r\n0\r\n\r\n")
    else:
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert answer.events[-1] == "[DONE]"
    assert alice.exchange().charge.charge_nanos == 39_300


def test_a_stream_has_its_events_and_its_end(version, account) -> None:
    *chunks, end = curl(version, account(), "farthing-echo", stream=True).events
    deltas = [json.loads(chunk)["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == PHRASE * 8
    assert end == "[DONE]"


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call(version, account, stream: bool) -> None:
    answer = curl(version, account(), "farthing-echo-tools", tools=[TOOL], stream=stream)
    if stream:
        deltas = [json.loads(chunk)["choices"][0]["delta"] for chunk in answer.events[:-1]]
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    else:
        calls = answer.json["choices"][0]["message"]["tool_calls"]
    assert calls[0]["function"]["name"] == "look_up"
    text = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(text) == {"query": "farthing"}


def test_a_structured_answer(version, account) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    answer = curl(version, account(), "farthing-echo-structured", response_format=asked)
    assert json.loads(answer.json["choices"][0]["message"]["content"]) == {"city": "farthing"}


def test_leaving_in_mid_stream_is_charged_for_what_came(version, account) -> None:
    alice = account()
    line = command(version, alice, "farthing-echo-chunks", stream=True)
    with subprocess.Popen(line, stdout=subprocess.PIPE) as running:
        while PHRASE.encode() not in running.stdout.readline():
            pass
        running.kill()
    charge = alice.exchange().charge
    assert (charge.outcome, charge.usage_source) == ("client_gone", "estimate")


def test_a_client_that_waits_no_longer_owes_nothing(version, account) -> None:
    alice = account()
    assert curl(version, alice, "farthing-echo-slow", "--max-time", "0.3").code == TIMED_OUT
    charge = alice.exchange().charge
    assert (charge.outcome, charge.charge_nanos) == ("client_gone", 0)


@pytest.mark.parametrize(
    ("balance", "model", "status", "code"),
    [
        ("10", "no-such-model", 404, "model_not_found"),
        ("0", "farthing-echo", 402, "insufficient_balance"),
        ("10", "farthing-echo-401", 502, "upstream_credential_rejected"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_is_one_object_with_its_length(
    version, account, balance: str, model: str, status: int, code: str, stream: bool
) -> None:
    alice = account(balance=balance)
    answer = curl(version, alice, model, stream=stream)
    assert (answer.code, answer.status) == (0, status)
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert answer.json["error"]["code"] == code
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert answer.headers["x-should-retry"] == "false"
    exchange = alice.exchange()
    assert (exchange.status_code, exchange.charge.charge_nanos) == (status, 0)


def test_a_bad_key(version, account) -> None:
    alice = account()
    alice.secret = "sk_live_wrong"
    answer = curl(version, alice, "farthing-echo")
    assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")


def test_too_many_requests(version, account) -> None:
    alice = account(requests_per_minute=1)
    assert curl(version, alice, "farthing-echo").status == 200
    answer = curl(version, alice, "farthing-echo")
    assert (answer.status, answer.json["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert answer.headers["x-should-retry"] == "true"
