import pytest

from billing.estimation import count_completion, count_prompt

HELLO = {"role": "user", "content": "hello world"}


def counted(model: str, *messages: dict, **others: object) -> int:
    return count_prompt({"messages": list(messages), **others}, model=model).tokens


def test_turns() -> None:
    assert counted("mistral-large", HELLO) == 1 + 2 + 2
    answer = {"role": "assistant", "content": "hello world"}
    assert counted("mistral-large", HELLO, answer, HELLO) == 1 + (2 + 2) + (1 + 2) + (2 + 2)


def test_a_reasoner_has_a_prompt_of_its_own() -> None:
    assert counted("magistral-small", HELLO) == 1 + 2 + 2 + 12


@pytest.mark.parametrize(("model", "tokens"), [("mistral-large", 103), ("open-mistral-7b", 119)])
def test_the_first_models_have_a_smaller_vocabulary(model: str, tokens: int) -> None:
    choice = {"message": {"content": "word" + " word" * 99}, "finish_reason": "stop"}
    assert count_completion({"choices": [choice]}, model=model).tokens == tokens
