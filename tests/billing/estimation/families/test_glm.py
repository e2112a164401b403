from billing.estimation import count_completion, count_prompt
from billing.estimation.text import counter

HELLO = {"role": "user", "content": "hello world"}


def counted(model: str, *messages: dict, **others: object) -> int:
    return count_prompt({"messages": list(messages), **others}, model=model).tokens


def test_turns() -> None:
    assert counted("glm-4.7", HELLO) == 2 + 1 + 2 + 2
    assert counted("glm-5.3", HELLO) == 2 + 1 + 2 + 9


def test_earlier_thoughts_are_dropped() -> None:
    thought = {"role": "assistant", "content": "<think>long</think>hello world"}
    assert counted("glm-4.7", HELLO, thought, HELLO) == 2 + 3 * (1 + 2) + 2


def test_tools_are_lines_in_the_system_message() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    one = counted("glm-4.7", HELLO, tools=[tool])
    two = counted("glm-4.7", HELLO, tools=[tool, tool])
    count = counter("o200k_base")
    assert two - one == count('{"name":"f"}\n{"name":"f"}\n') - count('{"name":"f"}\n')


def test_a_thought_is_closed() -> None:
    message = {"content": "hello world", "reasoning_content": "hello world"}
    choice = {"message": message, "finish_reason": "stop"}
    assert count_completion({"choices": [choice]}, model="glm-4.7").tokens == 2 + 2 + 3
