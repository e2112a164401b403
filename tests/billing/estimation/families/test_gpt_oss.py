"""The harmony text written out by hand, with one word for each control token's place."""

from billing.estimation import count_completion, count_prompt
from billing.estimation.text import counter

O200K = counter("o200k_base")
HELLO = {"role": "user", "content": "hello world"}


def counted(*messages: dict, model: str = "gpt-oss-120b", **others: object) -> int:
    return count_prompt({"messages": list(messages), **others}, model=model).tokens


def test_one_message_costs_67_beside_its_text() -> None:
    assert counted(HELLO) == 67 + 2


def test_groq_adds_four() -> None:
    assert counted(HELLO, model="openai/gpt-oss-120b") == 67 + 2 + 4


def test_a_system_message_is_the_developers() -> None:
    system = {"role": "system", "content": "Be brief."}
    assert counted(system, HELLO) == 67 + 2 + 4 + O200K("# Instructions\n\nBe brief.\n\n")


def test_tools_are_the_developers_too() -> None:
    tool = {"type": "function", "function": {"name": "weather"}}
    text = (
        "# Tools\n\n## functions\n\nnamespace functions {\n\ntype weather = () => any;\n\n"
        "} // namespace functions"
    )
    assert counted(HELLO, tools=[tool]) == 67 + 2 + 16 + 4 + O200K(text)


def test_earlier_reasoning_is_kept_only_before_calls() -> None:
    thought = {"role": "assistant", "content": "4", "reasoning": "two and two"}
    assert counted(HELLO, thought, HELLO) == 67 + 2 + (6 + 1) + (4 + 2)
    call = {"function": {"name": "f", "arguments": "{}"}}
    calling = {"role": "assistant", "tool_calls": [call], "reasoning": "two and two"}
    without = counted(HELLO, {**calling, "reasoning": ""})
    assert counted(HELLO, calling) - without == 6 + O200K("two and two")


def completed(**message: object) -> int:
    choice = {"message": message, "finish_reason": "stop"}
    return count_completion({"choices": [choice]}, model="gpt-oss-20b").tokens


def test_an_answer_has_its_channels() -> None:
    assert completed(content="hello world") == 2 + 4
    assert completed(content="hello world", reasoning_content="hello world") == 2 + 2 + 10
    call = {"function": {"name": "f", "arguments": "{}"}}
    assert completed(tool_calls=[call]) == 6 + O200K(" to=functions.f") + O200K("{}")
