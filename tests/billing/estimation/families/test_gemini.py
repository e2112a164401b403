import pytest

from billing.estimation import count_completion, count_prompt
from billing.estimation.text import counter

QWEN = counter("qwen3.5-text")
HELLO = {"role": "user", "content": "hello world"}
FUNCTION = {
    "name": "weather",
    "description": "Of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOL = {"type": "function", "function": FUNCTION}


def counted(model: str, **others: object) -> int:
    return count_prompt({"messages": [HELLO], **others}, model=model).tokens


@pytest.mark.parametrize(
    ("model", "frame"),
    [("gemini-1.5-flash", 0), ("gemini-2.0-flash", 0), ("gemini-2.5-pro", 1), ("gemini-3-pro", 1)],
)
def test_there_is_hardly_a_frame(model: str, frame: int) -> None:
    assert counted(model) == 2 + frame


def test_tools_of_2_0_are_names_and_descriptions() -> None:
    assert counted("gemini-2.0-flash", tools=[TOOL]) == 2 + 5 + QWEN("weather Of a city.")


def test_tools_of_3_are_declarations() -> None:
    inner = [
        "",
        "declaration:weather{description:",
        "Of a city.",
        ",parameters:{type:",
        "object",
        ",properties:{city:{type:",
        "string",
        "}}}}",
        "",
    ]
    assert counted("gemini-3-pro", tools=[TOOL]) == 2 + 5 + 8 + sum(map(QWEN, inner))


def test_a_tool_without_parameters_declares_none() -> None:
    tool = {"function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    inner = ["declaration:weather{description:", "}"]
    assert counted("gemini-3-pro", tools=[tool]) == 2 + 5 + 4 + sum(map(QWEN, inner))


@pytest.mark.parametrize(
    ("model", "text", "more"),
    [
        ("gemini-2.0-flash", "weather city Paris", 1),
        ("gemini-2.5-pro", 'print(default_api.weather(city="Paris"))', 5),
    ],
)
def test_calls_changed_with_the_versions(model: str, text: str, more: int) -> None:
    call = {"function": {"name": "weather", "arguments": '{"city":"Paris"}'}}
    choice = {"message": {"tool_calls": [call]}, "finish_reason": "stop"}
    tokens = count_completion({"choices": [choice]}, model=model).tokens
    assert abs(tokens - QWEN(text) - more) <= 1
