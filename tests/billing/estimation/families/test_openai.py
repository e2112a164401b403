import pytest

from billing.estimation import count_completion, count_prompt
from billing.estimation.text import counter

O200K = counter("o200k_base")
CL100K = counter("cl100k_base")
HELLO = {"role": "user", "content": "hello world"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}
PRINTED = "namespace functions {\n\ntype weather = () => any;\n\n} // namespace functions"


def counted(model: str, *messages: dict, **others: object) -> int:
    return count_prompt({"messages": list(messages), **others}, model=model).tokens


def test_a_message_and_the_reply() -> None:
    assert counted("gpt-4", HELLO) == 3 + 4 + 2
    assert counted("gpt-4o", HELLO, HELLO) == 3 + 2 * (4 + 2)


def test_a_reasoner_takes_one_less() -> None:
    assert counted("gpt-5", HELLO) == counted("o3", HELLO) == 3 + 4 + 2 - 1


def test_a_name_costs_itself_and_one() -> None:
    assert counted("gpt-4o", {**HELLO, "name": "Ada"}) == 3 + 4 + 2 + 1 + O200K("Ada")


def test_a_function_role_costs_two_less() -> None:
    message = {"role": "function", "name": "weather", "content": "{}"}
    assert counted("gpt-4", message) == 3 + 4 + CL100K("{}") + 1 + CL100K("weather") - 2


def test_a_legacy_call() -> None:
    call = {"name": "weather", "arguments": "{}"}
    message = {"role": "assistant", "content": None, "function_call": call}
    assert counted("gpt-4", message) == 3 + 4 + 3 + CL100K("weather") + CL100K("{}")


def test_tools_are_printed_as_typescript() -> None:
    tools = {"tools": [TOOL]}
    assert counted("gpt-4", HELLO, **tools) - counted("gpt-4", HELLO) == 9 + CL100K(PRINTED)
    assert counted("gpt-4o", HELLO, **tools) - counted("gpt-4o", HELLO) == 8 + O200K(PRINTED)
    assert counted("gpt-5", HELLO, **tools) - counted("gpt-5", HELLO) == 90 + O200K(PRINTED)


def test_a_system_message_carries_the_tools() -> None:
    system = {"role": "system", "content": "Hello"}
    more = counted("gpt-4", system, HELLO, tools=[TOOL]) - counted("gpt-4", system, HELLO)
    assert more == 9 + CL100K(PRINTED) - 4 + 1


@pytest.mark.parametrize(
    ("choice", "tokens"),
    [
        ("auto", 0),
        ("required", 0),
        ("none", 1),
        ({"type": "function", "function": {"name": "weather"}}, 5),
    ],
)
def test_a_chosen_tool(choice: object, tokens: int) -> None:
    plain = counted("gpt-4", HELLO, tools=[TOOL])
    assert counted("gpt-4", HELLO, tools=[TOOL], tool_choice=choice) == plain + tokens


def call(name: str) -> dict:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": '{"a":1}'}}


def test_a_call_and_the_name_its_result_bears() -> None:
    turn = {"role": "assistant", "content": None, "tool_calls": [call("weather")]}
    names = O200K(" to=functions.weather") + O200K("functions.weather")
    assert counted("gpt-4o", turn) == 3 + 4 + O200K('{"a":1}') + names + 1


def test_parallel_calls() -> None:
    turn = {"role": "assistant", "tool_calls": [call("weather"), call("clock")]}
    inner = O200K("weather") + O200K("clock") + 2 * O200K('{"a":1}')
    assert counted("gpt-4o", turn) == 3 + 4 + inner + 2 * 11


def test_a_response_format_has_a_heading() -> None:
    schema = {"title": "City", "type": "object", "additionalProperties": False}
    form = {"name": "city", "description": "A city.", "schema": schema}
    text = (
        "# Response Formats\n\n## city\n\n// A city.\n",
        '{"title":"City","type":"object","additionalProperties":false}',
    )
    request = {"response_format": {"type": "json_schema", "json_schema": form}}
    assert counted("gpt-4o", HELLO, **request) == counted("gpt-4o", HELLO) + O200K("".join(text))


def test_a_strict_response_format_loses_what_validators_read() -> None:
    schema = {"title": "City", "description": "A city.", "type": "object"}
    form = {"name": "city", "strict": True, "schema": schema}
    text = '# Response Formats\n\n## city\n\n// A city.\n{"type":"object"}'
    request = {"response_format": {"type": "json_schema", "json_schema": form}}
    assert counted("gpt-4o", HELLO, **request) == counted("gpt-4o", HELLO) + O200K(text)


def completed(
    model: str, content: str | None, request: dict | None = None, **others: object
) -> int:
    choice = {"message": {"content": content, **others}, "finish_reason": "stop"}
    return count_completion({"choices": [choice]}, model=model, request=request).tokens


def test_answers_end_with_what_the_generation_adds() -> None:
    assert completed("gpt-4o", "hello world") == 2
    assert completed("gpt-4o", "hello world", {"tools": [TOOL]}) == 3
    assert completed("gpt-5", "hello world") == 2 + 9
    assert completed("gpt-5.4", "hello world") == 2 + 3
    assert completed("gpt-5.4", "hello world", {"reasoning_effort": "low"}) == 2 + 9
    assert completed("o3-mini", "hello world") == 2 + 12


def test_an_answer_that_calls() -> None:
    inner = O200K(" to=functions.weather") + O200K('{"a":1}')
    assert completed("gpt-4o", None, tool_calls=[call("weather")]) == inner + 4
