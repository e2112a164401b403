import pytest

from gateway.benchecho.behaviours import EXAMPLES, NAMED, Behaviour, behaviour_of


@pytest.mark.parametrize("model", [*NAMED, *EXAMPLES])
def test_every_listed_model_has_a_behaviour(model):
    assert behaviour_of(model) is not None


def test_numbers_in_a_name_are_obeyed():
    assert behaviour_of("echo-chunks-52-10") == Behaviour(repetitions=52, chunk_delay_ms=10)
    assert behaviour_of("echo-chunks-1-0") == Behaviour(repetitions=1, chunk_delay_ms=0)
    assert behaviour_of("echo-slow-250") == Behaviour(first_byte_delay_ms=250)


@pytest.mark.parametrize(
    "model",
    [
        "",
        "gpt-4o",
        "Echo",
        "echo ",
        "echo-chunks",
        "echo-chunks-0-10",
        "echo-chunks-5",
        "echo-chunks-5--1",
        "echo-chunks-100001-0",
        "echo-chunks-1-600001",
        "echo-chunks-٣-1",
        "echo-slow-",
        "echo-slow-600001",
        "echo-slow-99999999999",
        "echo-slow-1\n",
    ],
)
def test_any_other_name_is_no_model(model):
    assert behaviour_of(model) is None
