import orjson
import pytest

from gateway.benchecho.answers import (
    ChatRequest,
    RequestRefusedError,
    completion,
    count_completion_tokens,
    count_prompt_tokens,
    read_request,
)
from gateway.benchecho.behaviours import behaviour_of


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [
        ([], 0),
        ([{"role": "user", "content": "benchmark"}], 5),
        ([{"role": "user", "content": " two\n words\t"}, {"role": "system", "content": ""}], 10),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a b c"}, {"type": "image_url"}],
                }
            ],
            7,
        ),
        ([{"role": "assistant", "content": None, "tool_calls": []}], 4),
        ([{"role": "user", "content": ["odd", {"text": 5}]}], 4),
    ],
)
def test_prompt_tokens_are_words_and_four_a_message(messages, tokens):
    assert count_prompt_tokens(messages) == tokens


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("echo", 64),
        ("echo-reasoning", 80),
        ("echo-tools", 8),
        ("echo-structured", 8),
        ("echo-chunks-3-0", 24),
    ],
)
def test_completion_tokens_are_eight_a_repetition(model, tokens):
    assert count_completion_tokens(behaviour_of(model)) == tokens


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"{}", "model"),
        (b'{"model": 5, "messages": []}', "model"),
        (b'{"model": "echo"}', "messages"),
        (b'{"model": "echo", "messages": ["x"]}', "messages"),
    ],
)
def test_a_body_that_is_no_request_is_refused_with_its_parameter(body, param):
    with pytest.raises(RequestRefusedError) as refused:
        read_request(body)
    assert refused.value.param == param


def test_usage_is_included_only_when_truly_asked_for():
    body = {"model": "echo", "messages": [], "stream": True}
    for options in (None, [], {"include_usage": 1}):
        request = read_request(orjson.dumps({**body, "stream_options": options}))
        assert request == ChatRequest("echo", [], is_stream=True, include_usage=False)
    request = read_request(orjson.dumps({**body, "stream_options": {"include_usage": True}}))
    assert request.include_usage is True


def test_every_answer_has_an_id_of_its_own():
    request = ChatRequest("echo", [], is_stream=False, include_usage=False)
    ids = {orjson.loads(completion(request, behaviour_of("echo")))["id"] for _ in range(20)}
    assert len(ids) == 20
