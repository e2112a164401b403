"""benchecho as others meet it: under uvicorn, on a real socket, byte for byte."""

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn

from gateway.benchecho.app import Benchecho
from gateway.benchecho.behaviours import EXAMPLES, NAMED
from gateway.benchecho.stats import Stats

FIXED_ANSWER = "farthing-benchecho-fixed-response" * 8
ZEROS = {
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "total_tokens": 0,
    "prompt_tokens_details": {"cached_tokens": 0},
}
TRUE_USAGE = {**ZEROS, "prompt_tokens": 6, "completion_tokens": 64, "total_tokens": 70}
MESSAGES = [{"role": "user", "content": "bench mark"}]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        assert self.headers["content-type"] == "text/event-stream"
        *events, rest = self.body.decode().split("\n\n")
        assert rest == ""
        return [event.removeprefix("data: ") for event in events]

    @property
    def chunks(self):
        return [json.loads(event) for event in self.events if event != "[DONE]"]


@dataclass(frozen=True)
class Server:
    port: int

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

    def call(self, method: str, path: str, body: bytes | None = None) -> Answer:
        connection = self.connection()
        try:
            connection.request(method, path, body, {"Authorization": "Bearer secret"})
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read())
        finally:
            connection.close()

    def chat(self, model: str, **fields) -> Answer:
        return self.call("POST", "/v1/chat/completions", body_of(model, **fields))

    def counted(self, model: str) -> dict[str, int]:
        return self.call("GET", "/stats").json["by_model"][model]


def body_of(model: str, **fields) -> bytes:
    return json.dumps({"model": model, "messages": MESSAGES, **fields}).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(Benchecho(Stats()), log_config=None, ws="none", lifespan="on")
    uvicorn_server = uvicorn.Server(config)
    thread = threading.Thread(target=uvicorn_server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield Server(listener.getsockname()[1])
    uvicorn_server.should_exit = True
    thread.join(timeout=10)
    assert not thread.is_alive()


def text_of(chunks, field: str = "content") -> str:
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get(field) or "" for delta in deltas)


# The normal model.


def test_the_normal_answer_is_fixed_and_counted_truly(server):
    answer = server.chat("echo").json
    assert re.fullmatch(r"chatcmpl-bench-[0-9a-f]{8}", answer.pop("id"))
    assert abs(answer.pop("created") - time.time()) < 60
    assert answer == {
        "object": "chat.completion",
        "model": "farthing-benchecho",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": FIXED_ANSWER},
                "finish_reason": "stop",
            }
        ],
        "usage": TRUE_USAGE,
    }


def test_a_stream_carries_the_fixed_answer_and_no_usage_unasked(server):
    answer = server.chat("echo", stream=True)
    assert answer.events[-1] == "[DONE]"
    assert answer.chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(answer.chunks) == FIXED_ANSWER
    assert [chunk["choices"][0]["finish_reason"] for chunk in answer.chunks] == [None] * 9 + [
        "stop"
    ]
    assert {chunk["model"] for chunk in answer.chunks} == {"farthing-benchecho"}
    assert {chunk["object"] for chunk in answer.chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in answer.chunks}) == 1
    assert b"usage" not in answer.body


def test_usage_asked_for_is_the_last_chunk_without_choices(server):
    answer = server.chat("echo", stream=True, stream_options={"include_usage": True})
    *others, last = answer.chunks
    assert (last["choices"], last["usage"]) == ([], TRUE_USAGE)
    assert [chunk["usage"] for chunk in others] == [None] * 10
    assert answer.events[-1] == "[DONE]"


# Usage that is missing or wrong.


def test_no_usage_whether_asked_for_or_not(server):
    assert "usage" not in server.chat("echo-no-usage").json
    answer = server.chat("echo-no-usage", stream=True, stream_options={"include_usage": True})
    assert b"usage" not in answer.body
    assert text_of(answer.chunks) == FIXED_ANSWER


def test_zero_usage_beside_a_whole_answer(server):
    assert server.chat("echo-zero-usage").json["usage"] == ZEROS
    answer = server.chat("echo-zero-usage", stream=True, stream_options={"include_usage": True})
    assert answer.chunks[-1]["usage"] == ZEROS
    assert text_of(answer.chunks) == FIXED_ANSWER


@pytest.mark.parametrize(
    ("model", "extra"),
    [("echo-json-as-stream", {}), ("echo-json-as-stream-zero-usage", {"usage": ZEROS})],
)
def test_one_json_body_is_labelled_as_a_stream(server, model, extra):
    answer = server.chat(model, stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["transfer-encoding"] == "chunked"
    body = answer.json
    assert re.fullmatch(r"chatcmpl-bench-[0-9a-f]{8}", body.pop("id"))
    assert isinstance(body.pop("created"), int)
    assert body == {
        "object": "chat.completion",
        "model": "farthing-benchecho",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": FIXED_ANSWER},
                "finish_reason": "stop",
            }
        ],
        **extra,
    }
    assert server.chat(model).headers["content-type"] == "application/json"


# Other outputs.


def test_a_tool_call_is_whole_in_one_answer_and_in_pieces_in_a_stream(server):
    choice = server.chat("echo-tools").json["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert call["function"] == {"name": "look_up", "arguments": '{"query": "farthing"}'}
    chunks = server.chat("echo-tools", stream=True).chunks
    grown = [chunk["choices"][0]["delta"].get("tool_calls", []) for chunk in chunks]
    pieces = [call["function"]["arguments"] for calls in grown for call in calls]
    assert "".join(pieces) == '{"query": "farthing"}'
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_structured_answer_fits_the_schema_that_was_asked_for(server):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    asked = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    answer = server.chat("echo-structured", response_format=asked).json
    assert answer["choices"][0]["message"]["content"] == '{"city":"farthing"}'
    assert answer["usage"]["completion_tokens"] == 8
    chunks = server.chat("echo-structured", stream=True, response_format=asked).chunks
    assert text_of(chunks) == '{"city":"farthing"}'
    assert len(chunks) == 1 + 4 + 1
    for unasked in (None, {"type": "json_object"}, {"json_schema": []}, "json"):
        answer = server.chat("echo-structured", response_format=unasked).json
        assert answer["choices"][0]["message"]["content"] == "{}"


def test_reasoning_counts_inside_the_completion(server):
    answer = server.chat("echo-reasoning").json
    assert answer["choices"][0]["message"]["reasoning_content"] == FIXED_ANSWER[: 33 * 2]
    assert answer["usage"]["completion_tokens"] == 80
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 16}
    chunks = server.chat("echo-reasoning", stream=True).chunks
    assert text_of(chunks, "reasoning_content") == FIXED_ANSWER[: 33 * 2]
    assert text_of(chunks) == FIXED_ANSWER


def test_chunks_come_in_the_number_and_pace_of_the_name(server):
    began = time.monotonic()
    answer = server.chat("echo-chunks-5-20", stream=True, stream_options={"include_usage": True})
    assert time.monotonic() - began >= 0.09
    assert text_of(answer.chunks) == "farthing-benchecho-fixed-response" * 5
    assert len(answer.chunks) == 1 + 5 + 1 + 1
    assert answer.chunks[-1]["usage"]["completion_tokens"] == 40


def test_a_slow_model_waits_before_its_first_byte(server):
    began = time.monotonic()
    assert server.chat("echo-slow-60").json["usage"] == TRUE_USAGE
    assert time.monotonic() - began >= 0.05


# Failures.


def test_a_cut_stream_ends_in_mid_answer(server):
    with pytest.raises(http.client.IncompleteRead) as cut:
        server.chat("echo-cut", stream=True)
    received = cut.value.partial
    assert received.count(b"farthing-benchecho-fixed-response") == 4
    assert b"[DONE]" not in received


def test_a_cut_body_is_shorter_than_its_length(server):
    with pytest.raises(http.client.IncompleteRead) as cut:
        server.chat("echo-cut")
    assert len(cut.value.partial) > 0
    assert cut.value.expected > 0


def test_a_stream_without_done_ends_in_order(server):
    answer = server.chat("echo-no-done", stream=True)
    assert text_of(answer.chunks) == FIXED_ANSWER
    assert b"[DONE]" not in answer.body


@pytest.mark.parametrize("stream", [False, True])
def test_too_many_requests_says_when_to_come_back(server, stream):
    answer = server.chat("echo-429", stream=stream)
    assert (answer.status, answer.headers["retry-after"]) == (429, "30")
    assert answer.json["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize("stream", [False, True])
def test_a_broken_vendor_answers_with_a_page(server, stream):
    answer = server.chat("echo-500", stream=stream)
    assert answer.status == 500
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.body.startswith(b"<html>")


def test_a_refused_credential_is_a_401(server):
    answer = server.chat("echo-401")
    assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")


def test_an_error_may_come_with_status_200(server):
    whole = server.chat("echo-error-200")
    assert (whole.status, list(whole.json)) == (200, ["error"])
    (event,) = server.chat("echo-error-200", stream=True).events
    assert json.loads(event) == whole.json


def test_an_unknown_model_is_a_404(server):
    answer = server.chat("gpt-4o")
    assert answer.status == 404
    assert answer.json["error"] == {
        "message": "The model `gpt-4o` does not exist.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert "gpt-4o" not in server.call("GET", "/stats").json["by_model"]


def test_a_body_that_is_no_request_is_a_400(server):
    answer = server.call("POST", "/v1/chat/completions", b"not json")
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")


# Everything else.


def test_the_models_are_listed(server):
    models = server.call("GET", "/v1/models").json
    assert models["object"] == "list"
    assert [entry["id"] for entry in models["data"]] == [*NAMED, *EXAMPLES]


def test_health_is_ok(server):
    assert server.call("GET", "/health").json == {"status": "ok"}


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", "/v1/chat/completions")])
def test_another_resource_is_a_404(server, method, path):
    answer = server.call(method, path)
    assert (answer.status, answer.json["error"]["code"]) == (404, None)


def test_finished_answers_are_counted_with_their_true_tokens(server):
    before = server.call("GET", "/stats").json
    server.chat("echo-json-as-stream-zero-usage", stream=True)
    after = server.call("GET", "/stats").json
    moved = {name: after[name] - before[name] for name in before if name != "by_model"}
    assert moved == {
        "requests": 1,
        "finished": 1,
        "failed": 0,
        "abandoned": 0,
        "prompt_tokens": 6,
        "completion_tokens": 64,
    }


def test_failures_are_counted_apart(server):
    server.chat("echo-500")
    count = server.counted("echo-500")
    assert count["failed"] == count["requests"] > 0
    assert (count["finished"], count["completion_tokens"]) == (0, 0)


@pytest.mark.parametrize("model", ["echo-never", "echo-slow-599999", "echo-chunks-9-599999"])
def test_a_client_that_leaves_ends_its_answer(server, model):
    connection = server.connection()
    connection.request("POST", "/v1/chat/completions", body_of(model, stream=True))
    while server.call("GET", "/stats").json["by_model"].get(model, {}).get("requests") != 1:
        pass
    connection.close()
    while server.counted(model)["abandoned"] != 1:
        pass
    assert server.counted(model)["finished"] == 0
