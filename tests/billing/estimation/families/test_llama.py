import pytest

from billing.estimation import count_completion, count_prompt
from billing.estimation.text import counter

HELLO = {"role": "user", "content": "hello world"}
SYSTEM = {"role": "system", "content": "hello world"}
TOOL = {"type": "function", "function": {"name": "f"}}


def counted(model: str, *messages: dict, **others: object) -> int:
    return count_prompt({"messages": list(messages), **others}, model=model).tokens


@pytest.mark.parametrize(
    ("model", "messages", "tokens"),
    [
        ("llama3-8b-8192", [HELLO], 1 + 5 + 2 + 4),
        ("llama-3.3-70b", [HELLO], 1 + 5 + 2 + 4 + 25),
        ("llama-3.1-8b", [SYSTEM, HELLO], 1 + 2 * (5 + 2) + 4 + 20),
    ],
)
def test_dates_came_with_3_1(model: str, messages: list[dict], tokens: int) -> None:
    assert counted(model, *messages) == tokens


def test_content_is_trimmed() -> None:
    padded = {"role": "user", "content": "  hello world\n"}
    assert counted("llama3-8b", padded) == counted("llama3-8b", HELLO)


def test_tools_are_json_in_the_prompt() -> None:
    more = counted("llama-3.3-70b", HELLO, tools=[TOOL]) - counted("llama-3.3-70b", HELLO)
    two = counted("llama-3.3-70b", HELLO, tools=[TOOL] * 2) - counted("llama-3.3-70b", HELLO)
    assert more > 50
    line = '{"type": "function", "function": {"name": "f"}}'
    count = counter("cl100k_base")
    assert two - more == count(f"{line}\n\n{line}") - count(line)


def test_servers_of_llama_4_write_a_manual() -> None:
    more = counted("llama-4-scout", HELLO, tools=[TOOL]) - counted("llama-4-scout", HELLO)
    assert more == 620 + counter("o200k_base")('[{"name": "f"}]')


def test_the_end_of_turn_is_generated_unless_cut() -> None:
    choice = {"message": {"content": "hello world"}, "finish_reason": "stop"}
    assert count_completion({"choices": [choice]}, model="llama-3.3").tokens == 3
    cut = {**choice, "finish_reason": "length"}
    assert count_completion({"choices": [cut]}, model="llama-3.3").tokens == 2
