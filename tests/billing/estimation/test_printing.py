import pytest

from billing.estimation import printing
from billing.estimation.printing import (
    MAX_PRINTED,
    MAX_PRINTED_CHARS,
    printed_tools,
    spaced_tools_json,
    tools_json,
)
from billing.estimation.reading import read_prompt


@pytest.fixture(autouse=True)
def _nothing_printed() -> None:
    printing._printed.clear()


def prompt_with(description: object):
    function = {"name": "f", "description": description}
    return read_prompt({"tools": [{"type": "function", "function": function}]}, "m")


def test_the_same_tools_are_printed_once() -> None:
    first = printed_tools(prompt_with("one"), tools_json)
    assert printed_tools(prompt_with("one"), tools_json) is first
    assert first == '[{"name":"f","description":"one"}]'


def test_other_tools_and_other_printers_are_printed_anew() -> None:
    assert printed_tools(prompt_with("one"), tools_json) != printed_tools(
        prompt_with("two"), tools_json
    )
    assert printed_tools(prompt_with("one"), spaced_tools_json) == (
        '[{"name": "f", "description": "one"}]'
    )
    assert len(printing._printed) == 3


def test_long_tools_are_not_kept() -> None:
    printed_tools(prompt_with("x" * MAX_PRINTED_CHARS), tools_json)
    assert not printing._printed


def test_tools_that_cannot_be_told_apart_are_not_kept() -> None:
    assert (
        printed_tools(prompt_with("\ud800"), tools_json) == '[{"name":"f","description":"\ud800"}]'
    )
    assert not printing._printed


def test_the_table_is_emptied_when_full() -> None:
    for number in range(MAX_PRINTED + 1):
        printed_tools(prompt_with(str(number)), tools_json)
    assert len(printing._printed) == 1
