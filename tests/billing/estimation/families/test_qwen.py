"""The template written out by hand, and counted in one piece, against the family's arithmetic."""

import pytest

from billing.estimation import count_completion, count_prompt
from billing.estimation.text import counter

USER = {"role": "user", "content": "What is the weather in Paris?"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
TOOL_LINE = (
    '{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}'
)
CALL = {"id": "c", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}
RESULT = {"role": "tool", "content": "sunny"}
HERMES = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are"
    " provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    f"{TOOL_LINE}\n</tools>\n\nFor each function call, return a json object with function name and"
    " arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
PRINTED_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
PRINTED_RESULT = "<tool_response>\nsunny\n</tool_response>"


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def prompt(*turns: tuple[str, str], generation: str = "") -> str:
    return "".join(turn(*each) for each in turns) + f"<|im_start|>assistant\n{generation}"


def counted(family: str, messages: list[dict], **others: object) -> int:
    return count_prompt({"messages": messages, **others}, model="m", family=family).tokens


def test_qwen_2_5_names_itself_unless_told_otherwise() -> None:
    system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    text = prompt(("system", system), ("user", USER["content"]))
    assert counted("qwen2.5", [USER]) == counter("qwen2")(text)
    own = [{"role": "system", "content": "Be brief."}, USER]
    text = prompt(("system", "Be brief."), ("user", USER["content"]))
    assert counted("qwen2.5", own) == counter("qwen2")(text)


@pytest.mark.parametrize(("family", "tokens"), [("qwen2.5", 30), ("qwen2", 20), ("qwen3", 9)])
def test_one_word_to_each_generation(family: str, tokens: int) -> None:
    assert counted(family, [{"role": "user", "content": "benchmark"}]) == tokens


def test_thinking_off_is_an_empty_thought() -> None:
    text = prompt(("user", USER["content"]), generation="<think>\n\n</think>\n\n")
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    for family, vocabulary in (("qwen3", "qwen3"), ("qwen3.5", "qwen3.5")):
        assert counted(family, [USER], **off) == counter(vocabulary)(text)
    assert counted("qwen3-nothink", [USER]) == counter("qwen3")(text)


def test_a_request_wins_over_the_servers_setting() -> None:
    on = {"chat_template_kwargs": {"enable_thinking": True}}
    assert counted("qwen3-nothink", [USER], **on) == counted("qwen3", [USER])


def test_qwen_3_5_opens_the_thought() -> None:
    text = prompt(("user", USER["content"]), generation="<think>\n")
    assert counted("qwen3.5", [USER]) == counter("qwen3.5")(text)


def test_an_instruct_model_has_no_switch() -> None:
    request = {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}}
    switched = count_prompt(request, model="qwen3-30b-a3b-instruct-2507").tokens
    assert switched == counted("qwen3", [USER])
    thinking = count_prompt({"messages": [USER]}, model="qwen3-235b-a22b-thinking-2507").tokens
    assert thinking == counted("qwen3", [USER]) + 2


def test_tools_calls_and_results_of_qwen_3() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": "Well.", "tool_calls": [CALL, CALL]},
        RESULT,
        RESULT,
    ]
    text = prompt(
        ("system", f"Be brief.\n\n{HERMES}"),
        ("user", USER["content"]),
        ("assistant", f"Well.\n{PRINTED_CALL}\n{PRINTED_CALL}"),
        ("user", f"{PRINTED_RESULT}\n{PRINTED_RESULT}"),
    )
    assert counted("qwen3", messages, tools=[TOOL]) == counter("qwen3")(text)


def test_tools_of_qwen_2_5() -> None:
    system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    text = prompt(
        ("system", f"{system}\n\n{HERMES}"),
        ("user", USER["content"]),
        ("assistant", PRINTED_CALL),
        ("user", PRINTED_RESULT),
    )
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]
    assert counted("qwen2.5", messages, tools=[TOOL]) == counter("qwen2")(text)


def test_earlier_reasoning_is_dropped_and_later_kept() -> None:
    thought = {"role": "assistant", "content": "4", "reasoning_content": "hm"}
    text = prompt(("user", "a"), ("assistant", "4"), ("user", "b"))
    messages = [{"role": "user", "content": "a"}, thought, {"role": "user", "content": "b"}]
    assert counted("qwen3", messages) == counter("qwen3")(text)
    calling = {"role": "assistant", "reasoning_content": "hm", "tool_calls": [CALL]}
    text = prompt(
        ("user", USER["content"]),
        ("assistant", f"<think>\nhm\n</think>\n\n\n{PRINTED_CALL}"),
        ("user", PRINTED_RESULT),
    )
    assert counted("qwen3", [USER, calling, RESULT]) == counter("qwen3")(text)


def test_reasoning_inside_content_is_dropped_too() -> None:
    thought = {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}
    text = prompt(("user", "a"), ("assistant", "4"), ("user", "b"))
    messages = [{"role": "user", "content": "a"}, thought, {"role": "user", "content": "b"}]
    assert counted("qwen3", messages) == counter("qwen3")(text)


XML_CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
    "</tool_call>"
)


def test_qwen_3_5_trims_and_prints_calls_as_xml() -> None:
    messages = [
        {"role": "system", "content": " Be brief. "},
        {"role": "user", "content": "  hi \n"},
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
        RESULT,
    ]
    text = prompt(
        ("system", "Be brief."),
        ("user", "hi"),
        ("assistant", f"<think>\n\n</think>\n\n{XML_CALL}\n{XML_CALL}"),
        ("user", PRINTED_RESULT),
        generation="<think>\n",
    )
    assert counted("qwen3.5", messages) == counter("qwen3.5")(text)


def test_the_coder_prints_calls_after_what_it_said() -> None:
    said = {"role": "assistant", "content": " Well. ", "tool_calls": [CALL]}
    text = prompt(
        ("user", USER["content"]),
        ("assistant", f"Well.\n\n{XML_CALL}"),
        ("user", PRINTED_RESULT),
    )
    assert counted("qwen3-coder", [USER, said, RESULT]) == counter("qwen3")(text)


def test_an_answer_of_qwen_3_5_goes_on_from_the_open_thought() -> None:
    message = {"content": "Well.", "reasoning_content": "hm", "tool_calls": [CALL]}
    completion = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    text = f"hm\n</think>\n\nWell.\n\n{XML_CALL}<|im_end|>"
    assert count_completion(completion, model="qwen3.5").tokens == counter("qwen3.5")(text)


def test_the_coder_prints_tools_as_xml() -> None:
    function = {
        "name": "weather",
        "description": "Of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its name.", "enum": ["a"]}},
            "required": ["city"],
        },
    }
    printed = (
        "<function>\n<name>weather</name>\n<description>Of a city.</description>\n<parameters>\n"
        "<parameter>\n<name>city</name>\n<type>string</type>\n<description>Its name.</description>"
        '\n<enum>["a"]</enum>\n</parameter>\n<required>["city"]</required>\n</parameters>\n'
        "</function>"
    )
    tool = {"type": "function", "function": function}
    one = counted("qwen3-coder", [USER], tools=[tool])
    two = counted("qwen3-coder", [USER], tools=[tool, tool])
    assert two - one == counter("qwen3")(f"{printed}\n{printed}") - counter("qwen3")(printed)


def test_a_calls_arguments_that_are_no_json_are_printed_as_they_are() -> None:
    broken = {"function": {"name": "weather", "arguments": '{"city'}}
    completion = {"choices": [{"message": {"tool_calls": [broken]}, "finish_reason": "stop"}]}
    text = '<tool_call>\n{"name": "weather", "arguments": {"city}\n</tool_call><|im_end|>'
    assert count_completion(completion, model="qwen3").tokens == counter("qwen3")(text)


def test_an_answer_with_reasoning_and_calls() -> None:
    message = {"content": "Well.", "reasoning": "hm", "tool_calls": [CALL]}
    completion = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    text = f"<think>\nhm\n</think>\n\nWell.\n{PRINTED_CALL}<|im_end|>"
    assert count_completion(completion, model="qwen3").tokens == counter("qwen3")(text)


def test_content_that_begins_with_a_newline_joins_the_frame() -> None:
    text = prompt(("user", "\n\nhi"))
    assert counted("qwen3", [{"role": "user", "content": "\n\nhi"}]) == counter("qwen3")(text)
