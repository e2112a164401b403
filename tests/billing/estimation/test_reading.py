from hypothesis import given, settings

from billing.estimation.images import Image
from billing.estimation.reading import (
    Choice,
    Message,
    ToolCall,
    read_choices,
    read_message,
    read_prompt,
)
from tests.billing.estimation.texts import json_value


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}, "three"]
    assert read_message({"role": "user", "content": parts}) == Message("user", "one twothree")


def test_null_content_is_empty() -> None:
    assert read_message({"role": "assistant", "content": None}) == Message("assistant", "")


def test_images_are_not_text() -> None:
    part = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"},
    }
    message = read_message({"role": "user", "content": [part]})
    assert message == Message("user", "", images=(Image(low_detail=True),))


def test_images_of_other_dialects_are_images() -> None:
    anthropic = {"type": "image", "source": {"type": "base64", "data": "AAAA"}}
    responses = {"type": "input_image", "image_url": "https://example.test/a.png"}
    message = read_message({"role": "user", "content": [anthropic, responses]})
    assert message.images == (Image(), Image())


def test_sound_and_files_are_other_media() -> None:
    parts = [
        {"type": "input_audio", "input_audio": {"data": "AAAA" * 1_000, "format": "wav"}},
        {"type": "file", "file": {"file_data": "AAAA" * 1_000}},
    ]
    assert read_message({"role": "user", "content": parts}) == Message("user", "", other_media=2)


def test_an_unknown_part_is_flagged_and_not_counted() -> None:
    part = {"type": "x_new", "data": {"a": 1}}
    assert read_message({"role": "user", "content": [part]}) == Message("user", "", unknown_parts=1)


def test_a_tool_result_of_parts_is_its_text() -> None:
    part = {"type": "tool_result", "content": [{"type": "text", "text": "sunny"}]}
    assert read_message({"role": "tool", "content": [part]}).text == "sunny"


def test_calls_are_read_in_either_dialect() -> None:
    chat = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    other = {"type": "tool_use", "id": "t1", "name": "g", "input": {"b": 2}}
    message = read_message({"role": "assistant", "tool_calls": [chat, other]})
    assert message.tool_calls == (ToolCall("f", '{"a":1}', "c1"), ToolCall("g", '{"b":2}', "t1"))


def test_a_legacy_call_is_marked() -> None:
    message = read_message({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}})
    assert message.tool_calls == (ToolCall("f", "{}"),)
    assert message.legacy_call


def test_one_of_two_names_for_reasoning_counts() -> None:
    both = {"role": "assistant", "content": "", "reasoning_content": "a", "reasoning": "a"}
    assert read_message(both).reasoning == "a"
    assert read_message({"role": "assistant", "reasoning": "b"}).reasoning == "b"


def test_legacy_functions_are_tools_unless_there_are_tools() -> None:
    function = {"name": "f", "parameters": {}}
    assert read_prompt({"functions": [function]}, "m").tools == (function,)
    tool = {"type": "function", "function": {"name": "g"}}
    both = read_prompt({"functions": [function], "tools": [tool]}, "m")
    assert both.tools == ({"name": "g"},)


def test_a_tool_of_another_dialect_has_parameters() -> None:
    tool = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
    assert read_prompt({"tools": [tool]}, "m").tools == (
        {"name": "f", "description": "d", "parameters": {"type": "object"}},
    )


def test_thinking_is_read_where_servers_read_it() -> None:
    assert read_prompt({"chat_template_kwargs": {"enable_thinking": False}}, "m").thinking is False
    assert read_prompt({"enable_thinking": True}, "m").thinking is True
    assert read_prompt({"chat_template_kwargs": {"enable_thinking": "no"}}, "m").thinking is None


def test_a_choice_has_all_that_was_delivered() -> None:
    message = {
        "content": "Yes. ",
        "reasoning_content": "think",
        "refusal": "No.",
        "audio": {"transcript": "Hm.", "data": "AAAA"},
        "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
    }
    (choice,) = read_choices({"choices": [{"message": message, "finish_reason": "stop"}]}, "length")
    assert choice == Choice("Yes. No.Hm.", "think", (ToolCall("f", "{}"),), "stop")


def test_a_finish_reason_is_lent_to_choices_without_one() -> None:
    (choice,) = read_choices({"choices": [{"message": {"content": "a"}}]}, "length")
    assert choice.finish_reason == "length"


def test_an_error_beside_choices_is_not_read() -> None:
    assert read_choices({"error": {"message": "long text"}}, None) == []
    (choice,) = read_choices({"choices": [{"error": {"message": "x"}, "message": {}}]}, None)
    assert not choice.delivered


def test_null_is_no_completion() -> None:
    assert read_choices(None, None) == []


@given(json_value)
@settings(max_examples=40)
def test_no_request_raises(value: object) -> None:
    for body in (value, {"messages": value}, {"messages": [value], "tools": value}):
        if isinstance(body, dict):
            read_prompt(body, "m")
    read_prompt({"messages": [{"role": value, "content": [value], "tool_calls": value}]}, "m")
    read_prompt({"response_format": value, "tools": [value], "tool_choice": value}, "m")


@given(json_value)
@settings(max_examples=40)
def test_no_completion_raises(value: object) -> None:
    read_choices({"choices": value}, None)
    read_choices({"choices": [value, {"message": value, "finish_reason": value}]}, None)
