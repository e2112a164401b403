import pytest

from billing.estimation import count_completion, count_prompt
from billing.estimation.family import scaled
from billing.estimation.text import counter

HELLO = {"role": "user", "content": "hello world"}
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"function": {"name": "f", "arguments": "{}"}}


def counted(model: str, *messages: dict, **others: object) -> int:
    return count_prompt({"messages": list(messages), **others}, model=model).tokens


def test_the_first_message_costs_seven_and_each_more_four() -> None:
    assert counted("claude-sonnet-4-5", HELLO) == 7 + 2
    assert counted("claude-sonnet-4-5", HELLO, HELLO) == 7 + 2 + 4 + 2


def test_a_system_message_costs_three() -> None:
    system = {"role": "system", "content": "hello world"}
    assert counted("claude-sonnet-4-5", system, HELLO) == 7 + 2 + 3 + 2


def test_from_4_7_texts_have_a_third_more_tokens() -> None:
    text = "word " * 100
    tokens = counter("o200k_base")(text)
    message = {"role": "user", "content": text}
    assert counted("claude-opus-4-7", message) == 7 + scaled(tokens, 1_360)


@pytest.mark.parametrize(
    ("model", "hidden"),
    [
        ("claude-3-5-haiku", 316),
        ("claude-sonnet-4-20250514", 316),
        ("claude-sonnet-4-5-20250929", 500),
        ("claude-opus-4-6", 500),
        ("claude-opus-4-8", 316),
        ("claude-sonnet-5", 430),
    ],
)
def test_tools_bring_a_hidden_prompt(model: str, hidden: int) -> None:
    more = counted(model, HELLO, tools=[TOOL]) - counted(model, HELLO)
    assert more - hidden in range(5, 12)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_forcing_a_tool_makes_it_longer(choice: object) -> None:
    free = counted("claude-sonnet-4-5", HELLO, tools=[TOOL])
    assert counted("claude-sonnet-4-5", HELLO, tools=[TOOL], tool_choice=choice) == free + 100


def test_answers_end_with_three_and_calls_are_dear() -> None:
    choice = {"message": {"content": "hello world"}, "finish_reason": "stop"}
    assert count_completion({"choices": [choice]}, model="claude-opus-4-6").tokens == 2 + 3
    calling = {"message": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}
    assert count_completion({"choices": [calling]}, model="claude-opus-4-6").tokens == 42 + 2 + 3
