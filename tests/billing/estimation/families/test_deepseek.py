import pytest

from billing.estimation import count_completion, count_prompt
from billing.estimation.text import counter

DEEPSEEK = counter("deepseek")
HELLO = {"role": "user", "content": "hello world"}
CALL = {"function": {"name": "f", "arguments": '{"a":"b","c":1}'}}


def counted(*messages: dict, model: str = "deepseek-chat", **others: object) -> int:
    return count_prompt({"messages": list(messages), **others}, model=model).tokens


def test_a_turn_is_one_token_beside_its_text() -> None:
    assert counted(HELLO) == 3 + 2
    assert counted({"role": "system", "content": "hello world"}, HELLO) == 3 + 2 + 2
    assert counted(HELLO, {"role": "assistant", "content": "hello world"}, HELLO) == 3 + 6 + 3


def test_the_vendors_reasoner_opens_a_thought() -> None:
    assert counted(HELLO, model="deepseek-reasoner") == 3 + 2 + 2
    assert counted(HELLO, model="deepseek-ai/DeepSeek-R1") == 3 + 2


def test_earlier_thoughts_are_dropped() -> None:
    thought = {"role": "assistant", "content": "<think>\nlong\n</think>hello world"}
    plain = {"role": "assistant", "content": "hello world"}
    assert counted(HELLO, thought, HELLO) == counted(HELLO, plain, HELLO)


def test_tools_bring_their_manual() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    assert counted(HELLO, tools=[tool]) == 5 + 222 + DEEPSEEK('{"name": "f"}')
    assert counted(HELLO, tools=[tool], model="deepseek-r1") == 5


def test_a_call_is_marked_up() -> None:
    text = (
        '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n'
        '<｜DSML｜parameter name="a" string="true">b</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="c" string="false">1</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    )
    assert completed("deepseek-chat", None, tool_calls=[CALL]) == DEEPSEEK(text)


def completed(model: str, content: str | None, reason: str = "stop", **others: object) -> int:
    choice = {"message": {"content": content, **others}, "finish_reason": reason}
    return count_completion({"choices": [choice]}, model=model).tokens


@pytest.mark.parametrize(
    ("model", "reason", "thought", "tokens"),
    [
        ("deepseek-chat", "stop", "", 2),
        ("deepseek-chat", "stop", "hello world", 5),
        ("deepseek-r1", "stop", "", 3),
        ("deepseek-r1", "length", "", 2),
        ("deepseek-reasoner", "stop", "hello world", 6),
    ],
)
def test_the_end_of_an_answer(model: str, reason: str, thought: str, tokens: int) -> None:
    assert completed(model, "hello world", reason, reasoning_content=thought) == tokens


def test_an_old_call_is_marked_by_control_tokens() -> None:
    text = (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        '{"a":"b","c":1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    )
    assert completed("deepseek-v3", None, tool_calls=[CALL]) == DEEPSEEK(text)
