import json

import pytest

from gateway.qualification import judging
from gateway.qualification.answers import Streamed, Whole


def answer(status: int = 200, finish_reason: str = "stop", **message) -> Whole:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return Whole(status, {"object": "chat.completion", "choices": [choice]})


@pytest.mark.parametrize("text", ["4", "4.", "2+2 = 4", "**4**", "The answer is 4!"])
def test_four_is_four(text):
    assert judging.arithmetic(answer(content=text)).passed is True


@pytest.mark.parametrize("text", ["5", "44", "14", "4.5", "3.4", "four", "", None, ["4"]])
def test_what_is_not_four_is_not(text):
    assert judging.arithmetic(answer(content=text)).passed is False


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ('{"city":"Paris","count":3}', True),
        ('\n{ "count": 3, "city": "Paris" } ', True),
        ('```json\n{"city":"Paris","count":3}\n```', False),
        ('{"city":"Paris","count":"3"}', False),
        ('{"city":"Paris","count":3,"more":1}', False),
        ("[" * 100_000, False),
    ],
)
def test_the_object_is_exact(text, passed):
    assert judging.json_object(answer(content=text)).passed is passed


def test_an_answer_that_thought_to_its_end_is_undecided():
    cut = answer(finish_reason="length", content="", reasoning="Two and two …")
    assert judging.arithmetic(cut).passed is None
    assert judging.arithmetic(answer(finish_reason="length", content="Two and")).passed is False


def call(arguments='{"query": "farthing"}', name="look_up", **fields) -> dict:
    return {"id": "call_1", "function": {"name": name, "arguments": arguments}, **fields}


@pytest.mark.parametrize(
    ("calls", "finish_reason", "passed"),
    [
        ([call()], "tool_calls", True),
        ([], "stop", None),
        (None, "stop", None),
        ("look_up", "tool_calls", False),
        ([call(name="other")], "tool_calls", False),
        ([call("{")], "tool_calls", False),
        ([call('["farthing"]')], "tool_calls", False),
        ([call({"query": "farthing"})], "tool_calls", False),
        ([call("{}")], "tool_calls", False),
        ([call(id="")], "tool_calls", False),
        ([call()], "stop", False),
        ([{"id": "call_1", "function": None}], "tool_calls", False),
    ],
)
def test_a_call_must_be_usable(calls, finish_reason, passed):
    found = judging.tools(
        answer(finish_reason=finish_reason, content=None, tool_calls=calls), "look_up", "query"
    )
    assert found.passed is passed


def streamed(*chunks: dict, content_type: str = "text/event-stream; charset=utf-8") -> Streamed:
    return Streamed(200, content_type, list(chunks), is_done=True)


def chunk(finish_reason: str | None = None, **delta) -> dict:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (streamed(chunk(content="4"), chunk("stop")), ""),
        (streamed(chunk(content="4"), chunk("stop"), content_type="text/html"), "the content type"),
        (streamed(chunk(content="4")), "there is no finish_reason"),
        (streamed(chunk("stop")), "no event carries a part of the answer"),
        (
            streamed({**chunk("stop", content="4"), "object": "chat.completion"}),
            "an event is no chat.completion.chunk",
        ),
        (Streamed(200, "text/event-stream", ["MALFORMED"]), "an event is no JSON object"),
        (Streamed(404, "application/json"), "answered 404"),
    ],
)
def test_a_stream_has_a_form(stream, reason):
    found = judging.stream(stream)
    assert found.passed is (not reason)
    assert found.reason.startswith(reason)


REQUEST = {"messages": [{"role": "user", "content": "Compute 2+2. Answer briefly."}]}


@pytest.mark.parametrize(
    ("family", "prompt_tokens", "completion_tokens", "passed"),
    [
        ("qwen3-nothink", 21, 2, True),
        ("qwen3", 17, 2, True),
        ("qwen3", 21, 2, False),
        ("qwen3-nothink", 21, 1, False),
        ("claude", 21, 2, None),
    ],
)
def test_usage_is_ours_where_ours_is_exact(family, prompt_tokens, completion_tokens, passed):
    said = answer(content="4")
    said.value["usage"] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    found = judging.usage(said, REQUEST, model="any", family=family)
    assert found.passed is passed
    assert found.observed["vendor"]["prompt_tokens"] == prompt_tokens
    assert found.observed["family"] == family


def test_a_prompt_that_was_cut_is_found():
    said = answer(content="done")
    said.value["usage"] = {"prompt_tokens": 2_048, "completion_tokens": 2, "total_tokens": 2_050}
    found = judging.long_input(said, 3_000)
    assert (found.passed, found.reason) == (False, "of 3000 words the vendor read 2048 tokens")
    assert json.dumps(found.observed) == '{"words": 3000, "prompt_tokens": 2048}'
