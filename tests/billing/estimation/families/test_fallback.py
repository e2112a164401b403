from billing.estimation import APPROXIMATE, count_completion, count_prompt

HELLO = {"role": "user", "content": "hello world"}


def test_a_prompt_is_openais_plain_frame() -> None:
    count = count_prompt({"messages": [HELLO, HELLO]}, model="kimi-k2")
    assert count.tokens == 3 + 2 * (3 + 2)
    assert count.method == APPROXIMATE


def test_tools_and_schemas_are_json() -> None:
    tool = {"function": {"name": "f"}}
    more = count_prompt({"messages": [HELLO], "tools": [tool]}, model="kimi-k2").tokens
    assert more > 8
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    more = count_prompt({"messages": [HELLO], "response_format": form}, model="kimi-k2").tokens
    assert more > 8


def test_an_answer_ends() -> None:
    choice = {"message": {"content": "hello world"}, "finish_reason": "stop"}
    assert count_completion({"choices": [choice]}, model="kimi-k2").tokens == 3
