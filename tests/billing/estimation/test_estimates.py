import base64
import json
import struct
import time
from dataclasses import FrozenInstanceError
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.estimation import (
    APPROXIMATE,
    FAMILIES,
    TEMPLATE_EXACT,
    VOCABULARY_EXACT,
    count_completion,
    count_prompt,
    estimate,
    prompt_bound,
)
from billing.estimation.vocabularies import VOCABULARIES
from tests.billing.estimation.texts import json_value, wild_text

MEASURED = json.loads((Path(__file__).parent / "measured.json").read_text(encoding="utf-8"))
"""Counts of llama.cpp's own server with the true Qwen 3 vocabulary."""
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its name."}},
            "required": ["city"],
        },
    },
}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
MAX_SECONDS = 20


def chat(*contents: object, **others: object) -> dict:
    return {"messages": [{"role": "user", "content": c} for c in contents], **others}


def answer(content: object = None, finish_reason: str = "stop", **others: object) -> dict:
    message = {"role": "assistant", "content": content, **others}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}


def estimated(request: dict, completion: dict | None, model: str = "gpt-4o", **others: object):
    return estimate(
        request, completion, model=model, **{"max_output_tokens": None, "n": 1, **others}
    )


@pytest.mark.parametrize(
    ("prompt", "completion", "counts"),
    [
        ("Compute 2+2. Answer briefly.", "4", (21, 2)),
        (
            (
                "Return only valid JSON with no markdown. The object must be exactly "
                '{"city":"Paris","count":3}.'
            ),
            '{"city":"Paris","count":3}',
            (34, 10),
        ),
    ],
)
def test_the_counts_of_a_stock_server(
    prompt: str, completion: str, counts: tuple[int, int]
) -> None:
    request = chat(prompt, chat_template_kwargs={"enable_thinking": False})
    told = estimated(request, answer(completion), "qwen3")
    assert (told.prompt_tokens, told.completion_tokens) == counts
    by_route = estimated(chat(prompt), answer(completion), "default_model", family="qwen3-nothink")
    assert (by_route.prompt_tokens, by_route.completion_tokens) == counts
    assert told.method == TEMPLATE_EXACT


def test_qwen_2_5_is_told_who_it_is() -> None:
    assert count_prompt(chat("benchmark"), model="qwen2.5-coder-1.5b-free-g7").tokens == 30


@pytest.mark.parametrize("row", MEASURED, ids=range(len(MEASURED)))
def test_a_measured_count_is_exact(row: dict) -> None:
    request = {
        "messages": row["messages"],
        "chat_template_kwargs": {"enable_thinking": row["thinking"]},
    }
    completion = answer(row["completion_text"], row["finish_reason"])
    told = estimated(request, completion, "tiny-qwen3")
    assert told.prompt_tokens == row["prompt_tokens"]
    assert told.completion_tokens == row["completion_tokens"]
    assert told.expected_error == 0


# --- what is delivered is counted, and nothing else ---------------------------------------------


@pytest.mark.parametrize(
    "completion",
    [
        None,
        {},
        {"choices": []},
        answer(None),
        answer(""),
        {"choices": [{"index": 0, "message": None, "finish_reason": "stop"}]},
        {"error": {"message": "The model is overloaded. " * 50}},
        {**answer(None), "error": {"message": "The model is overloaded. " * 50}},
    ],
)
def test_nothing_delivered_is_nothing_completed(completion: dict | None) -> None:
    for family in FAMILIES:
        told = estimated(chat("hi"), completion, family=family)
        assert told.completion_tokens == 0, family
        assert told.prompt_tokens > 0, family


@pytest.mark.parametrize("family", FAMILIES)
def test_reasoning_counts(family: str) -> None:
    thought = "think " * 20 + "more " * 20
    without = count_completion(answer("Yes."), model="m", family=family).tokens
    with_it = count_completion(answer("Yes.", reasoning_content=thought), model="m", family=family)
    assert 30 <= with_it.tokens - without <= 70


@pytest.mark.parametrize("family", FAMILIES)
def test_only_reasoning_counts_too(family: str) -> None:
    told = count_completion(answer(None, reasoning_content="think " * 40), model="m", family=family)
    assert 40 <= told.tokens <= 70


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_count(family: str) -> None:
    told = count_completion(answer(None, tool_calls=[CALL]), model="m", family=family)
    assert 4 <= told.tokens <= 60


@pytest.mark.parametrize("family", FAMILIES)
def test_every_choice_counts_and_the_prompt_once(family: str) -> None:
    one = estimated(chat("Say hello."), answer("A1"), family=family)
    choices = answer("A1")["choices"] * 2
    two = estimated(chat("Say hello.", n=2), {"choices": choices}, family=family, n=2)
    assert two.completion_tokens == 2 * one.completion_tokens
    assert two.prompt_tokens == one.prompt_tokens


def test_a_cut_answer_has_no_end_token() -> None:
    whole = count_completion(answer("one two"), model="qwen3").tokens
    cut = count_completion(answer("one two", "length"), model="qwen3").tokens
    assert whole == cut + 1
    lent = answer("one two")
    del lent["choices"][0]["finish_reason"]
    assert count_completion(lent, model="qwen3", finish_reason="length").tokens == cut


def test_ten_words_without_usage() -> None:
    told = estimated(
        chat("Say hello."), answer("One two three four five six seven eight nine ten.")
    )
    assert told.prompt_tokens in range(3, 21)
    assert told.completion_tokens in range(8, 17)


# --- bounds -------------------------------------------------------------------------------------


def test_an_estimate_is_never_above_what_was_allowed() -> None:
    told = estimated(chat("hi"), answer("word " * 1_000), max_output_tokens=100, n=2)
    assert told.completion_tokens == 200
    assert "capped" in told.flags


def test_an_estimate_is_never_above_the_models_window() -> None:
    told = estimated(chat("word " * 1_000), answer("hi"), context_tokens=512)
    assert told.prompt_tokens == 512
    assert "capped" in told.flags


def test_below_its_caps_an_estimate_is_not_flagged() -> None:
    told = estimated(chat("hi"), answer("hi"), max_output_tokens=100, context_tokens=512)
    assert told.flags == ()


@pytest.mark.parametrize("n", [0, -1])
def test_a_number_of_choices_below_one_is_one(n: int) -> None:
    assert estimated(chat("hi"), answer("a b c d"), max_output_tokens=2, n=n).completion_tokens == 2


# --- how sure we are ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "request_", "method"),
    [
        ("gpt-4o", chat("hi"), TEMPLATE_EXACT),
        ("gpt-4o", chat("hi", tools=[WEATHER]), VOCABULARY_EXACT),
        ("qwen3", chat("hi", tools=[WEATHER]), TEMPLATE_EXACT),
        ("deepseek-chat", chat("hi"), TEMPLATE_EXACT),
        ("claude-sonnet-4-5", chat("hi"), APPROXIMATE),
        ("kimi-k2", chat("hi"), APPROXIMATE),
    ],
)
def test_the_method_says_what_is_known(model: str, request_: dict, method: str) -> None:
    assert count_prompt(request_, model=model).method == method


def test_a_count_names_what_it_was_counted_with() -> None:
    count = count_prompt(chat("hi"), model="gpt-4o")
    assert (count.family, count.vocabulary) == ("openai-o200k", "o200k_base")
    assert count.vocabulary_sha256 == VOCABULARIES["o200k_base"].file.sha256
    assert count.rule_version == "2026-12-01"
    assert count.flags == ()
    assert count.expected_error == 0


def test_hidden_reasoning_makes_a_lower_bound() -> None:
    told = estimated(chat("hi"), answer("Hello."), "gpt-5")
    assert told.flags == ("reasoning_unknown",)
    assert told.expected_error is None
    assert told.sentence() == (
        "Counted with the vocabulary and chat template of OpenAI o-series and GPT-5; hidden"
        " reasoning could not be counted, so this is a lower bound."
    )


def test_gpt_5_1_reasons_only_when_asked() -> None:
    assert estimated(chat("hi"), answer("Hello."), "gpt-5.1").flags == ()
    asked = chat("hi", reasoning_effort="high")
    assert estimated(asked, answer("Hello."), "gpt-5.1").flags == ("reasoning_unknown",)


def test_media_have_no_known_error() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.test/cat.png"}}
    told = estimated(chat([part]), answer("A cat."))
    assert told.flags == ("media",)
    assert told.method == VOCABULARY_EXACT
    assert told.sentence().endswith("the expected error is not known.")


def test_an_error_of_both_sides_is_weighted_by_their_tokens() -> None:
    told = estimated(chat("hi"), answer("word " * 300), "claude-sonnet-4-5")
    assert told.expected_error == Decimal("0.050")
    assert told.sentence() == (
        "Counted by approximation: Claude before 4.7 has no public vocabulary, qwen3.5-text"
        " stands in for it; expected error about 5 %."
    )


def test_an_exact_count_says_so() -> None:
    assert estimated(chat("hi"), answer("Hello."), "qwen3").sentence() == (
        "Counted with the vocabulary and chat template of Qwen 3; expected to be exact."
    )


def test_an_estimate_does_not_change() -> None:
    told = estimated(chat("hi"), answer("Hello."))
    with pytest.raises(FrozenInstanceError):
        told.prompt_tokens = 0


@pytest.mark.parametrize("family", ["claude", "gemini", "mistral", "openai-o200k", "glm"])
def test_control_tokens_of_others_are_text_to_a_hosted_vendor(family: str) -> None:
    """A prompt of another family's control tokens would be cheap otherwise."""
    text = "<|im_end|>" * 100
    assert count_prompt(chat(text), model="m", family=family).tokens > 300


# --- images -------------------------------------------------------------------------------------


def data_url(width: int, height: int, size_bytes: int = 0) -> str:
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)
    return "data:image/png;base64," + base64.b64encode(header + b"\0" * size_bytes).decode()


def image(url: str, **others: object) -> dict:
    return {"type": "image_url", "image_url": {"url": url, **others}}


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        ("gpt-4o", (800, 400), 425),
        ("gpt-4.1-nano", (540, 360), 502),
        ("claude-sonnet-4-5", (280, 280), 100),
        ("gemini-2.5-flash", (540, 360), 258),
    ],
)
def test_an_image_costs_what_its_size_costs(model: str, size: tuple[int, int], tokens: int) -> None:
    plain = count_prompt(chat("What is it?"), model=model).tokens
    parts = [{"type": "text", "text": "What is it?"}, image(data_url(*size))]
    assert count_prompt(chat(parts), model=model).tokens - plain == tokens


def test_low_detail_costs_the_base() -> None:
    part = image(data_url(2_000, 2_000), detail="low")
    plain = count_prompt(chat(""), model="gpt-4o").tokens
    assert count_prompt(chat([part]), model="gpt-4o").tokens - plain == 85


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "url",
    ["data:image/png;base64," + "A" * 1_900_000, data_url(3_000, 2_000, 3_000_000)],
    ids=["no-header", "header"],
)
def test_base64_is_never_counted_as_text(family: str, url: str) -> None:
    request = chat([{"type": "text", "text": "What is it?"}, image(url)])
    without = count_prompt(chat("What is it?"), model="m", family=family).tokens
    count = count_prompt(request, model="m", family=family).tokens
    assert count - without in range(100, 10_000)
    assert prompt_bound(request, model="m", family=family) == count


# --- the bound for holds ------------------------------------------------------------------------

role = st.sampled_from(
    ["system", "user", "assistant", "tool", "function", "developer", "model", ""]
)
content = st.one_of(
    wild_text,
    st.none(),
    st.lists(
        wild_text.map(lambda text: {"type": "text", "text": text})
        | st.just(image("https://example.test/a.png"))
        | st.just({"type": "input_audio", "input_audio": {"data": "AAAA"}})
        | st.just({"type": "x_new", "data": {"a": 1}}),
        max_size=3,
    ),
)
call = st.builds(
    lambda name, arguments: {"function": {"name": name, "arguments": arguments}},
    wild_text,
    wild_text | json_value.map(lambda value: json.dumps({"value": value})),
)
message = st.builds(
    lambda role, content, name, calls, reasoning: {
        "role": role,
        "content": content,
        **({"name": name} if name else {}),
        **({"tool_calls": calls} if calls else {}),
        **({"reasoning_content": reasoning} if reasoning else {}),
    },
    role,
    content,
    st.just("") | wild_text,
    st.lists(call, max_size=2),
    st.just("") | wild_text,
)
tool = st.builds(
    lambda name, description, properties: {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {"field": properties}},
        },
    },
    wild_text,
    wild_text,
    json_value,
)
body = st.builds(
    lambda messages, tools, schema, thinking: {
        "messages": messages,
        **({"tools": tools} if tools else {}),
        **({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
           if schema else {}),
        **({"chat_template_kwargs": {"enable_thinking": thinking}} if thinking is not None else {}),
    },
    st.lists(message, max_size=4),
    st.lists(tool, max_size=2),
    st.none() | json_value,
    st.none() | st.booleans(),
)  # fmt: skip
models = st.sampled_from(["m", "gpt-4.1-mini", "gemini-2.0-flash", "gemini-2.5-pro", "deepseek-r1"])


def check_bounds(request: dict, model: str) -> None:
    for family in FAMILIES:
        count = count_prompt(request, model=model, family=family).tokens
        assert prompt_bound(request, model=model, family=family) >= count, family


@given(request=body, model=models)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_bound_is_never_below_the_count(request: dict, model: str) -> None:
    check_bounds(request, model)


@pytest.mark.long
@given(request=body, model=models)
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_bound_is_never_below_the_count_of_many(request: dict, model: str) -> None:
    check_bounds(request, model)


def test_the_bound_of_an_ordinary_prompt_is_near() -> None:
    text = "The quick brown fox, it is said, jumps over the lazy dog near the river bank. " * 50
    request = chat(text)
    for family in FAMILIES:
        count = count_prompt(request, model="m", family=family).tokens
        assert count <= prompt_bound(request, model="m", family=family) <= 1.05 * count


# --- total and bounded --------------------------------------------------------------------------


@given(value=json_value)
@settings(max_examples=6, deadline=None)
def test_nothing_raises(value: object) -> None:
    request = {
        "messages": [
            value,
            {"role": value, "content": value, "tool_calls": [value], "name": value},
        ],
        "tools": [value, {"function": value}, {"function": {"name": value, "parameters": value}}],
        "tool_choice": value,
        "response_format": {"type": "json_schema", "json_schema": value},
        "chat_template_kwargs": value,
    }
    completion = {"choices": [value, {"message": {"content": value, "tool_calls": [value]}}]}
    for family in FAMILIES:
        told = estimated(request, completion, "m", family=family)
        assert told.prompt_tokens >= 0
        assert prompt_bound(request, model="m", family=family) >= told.prompt_tokens
        assert isinstance(told.sentence(), str)


@pytest.mark.parametrize("family", FAMILIES)
def test_deep_nesting_does_not_raise(family: str) -> None:
    deep: object = "word"
    for _ in range(1_100):  # beyond Python's own limit
        deep = {"a": [deep]}
    arguments = "[" * 100_000
    request = {
        "messages": [
            {"role": "user", "content": [deep, {"content": deep}]},
            {"role": "assistant", "tool_calls": [{"function": {"name": deep, "arguments": deep}}]},
            {"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]},
        ],
        "tools": [{"function": {"name": "f", "parameters": {"properties": {"x": deep}}}}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": deep}},
    }
    told = estimated(request, None, "m", family=family)
    assert told.prompt_tokens > 0


@pytest.mark.parametrize("family", ["openai-o200k", "qwen2.5", "qwen3", "claude", "deepseek"])
def test_ten_thousand_messages_are_counted_in_bounded_time(family: str) -> None:
    turns = [{"role": role, "content": "Hello there."} for role in ("user", "assistant")]
    request = {"messages": turns * 5_000}
    started = time.monotonic()
    assert count_prompt(request, model="m", family=family).tokens > 30_000
    assert prompt_bound(request, model="m", family=family) > 30_000
    assert time.monotonic() - started < MAX_SECONDS


@pytest.mark.parametrize("family", ["openai-o200k", pytest.param("qwen3", marks=pytest.mark.long)])
def test_five_megabytes_are_counted_in_bounded_time(family: str) -> None:
    request = chat("The quick brown fox, 12345 times; 中文 too.\n" * 110_000)
    started = time.monotonic()
    count = count_prompt(request, model="m", family=family).tokens
    assert prompt_bound(request, model="m", family=family) >= count > 1_000_000
    assert time.monotonic() - started < MAX_SECONDS
