"""Group a: how answers are written on the wire, and that nobody has to know."""

import pytest

from tests.cases.runner import Ask, Case, Gets, vendors
from tests.cases.wire import (
    EVENTS,
    JSON,
    ROLE,
    STOP,
    completion,
    counts,
    event,
    stream,
    text,
    usage,
    whole,
)

STREAM = Ask(fields={"stream": True})
CASES = [
    Case(
        id="A01",
        rule="a body labelled as an event stream is a body",
        sends=whole(completion(tokens=counts(21, 7)), label=EVENTS),
        gets=Gets(kind=JSON, has=('"Hello"', '"usage"'), lacks=("data:",)),
        pays=vendors(21, 7, "0.000049"),
    ),
    Case(
        id="A05",
        rule="the space after the colon is optional",
        sends=stream(
            *(event(v, lead=b"data:") for v in (ROLE, text("Hello"), STOP, usage(23, 4))),
            b"data:[DONE]\n\n",
            done=False,
        ),
        asks=STREAM,
        gets=Gets(text="Hello", done=True),
        pays=vendors(23, 4, "0.000039"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_streaming(stage, case: Case) -> None:
    stage.play(case)
