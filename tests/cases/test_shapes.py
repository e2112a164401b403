"""Kinds of group a that no case lists: objects that vendors put where one would not look."""

import json

import pytest

from tests.cases.runner import Ask, Case, Gets, vendors
from tests.cases.wire import (
    DONE,
    EVENTS,
    ROLE,
    STOP,
    Answer,
    chunk,
    completion,
    counts,
    delta,
    event,
    stream,
    text,
    usage,
    whole,
)

WITH_USAGE = Ask(fields={"stream": True, "stream_options": {"include_usage": True}})
VALUES = (ROLE, text("Hel"), text("lo"), STOP, usage(9, 2))
ROW = b"".join(json.dumps(value).encode() for value in VALUES)
MESSAGE = {"role": "assistant", "content": "Hello"}
LAST = chunk(
    {"index": 0, "message": MESSAGE, "finish_reason": "stop"},
    object="chat.completion",
    usage=counts(9, 2),
)


def called(call_id: str) -> dict:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"index": 0, "id": call_id, "type": "function", "function": function}]
    return delta({"tool_calls": calls})


SENT = {
    "twice": stream(*(event(value, lead=b"data: data: ") for value in VALUES)),
    "row": stream(b"data: %b\n\n" % ROW),
    "row-cut": Answer(
        pieces=[b"data: " + ROW[:200], ROW[200:201], ROW[201:] + b"\n\n" + DONE], label=EVENTS
    ),
    "lines": stream(*(event(value, end=b"\n") for value in VALUES), b"\n"),
    "list": stream(list(VALUES)),
    "lists": stream(*([value] for value in VALUES)),
    "texts": stream(*(json.dumps(value) for value in VALUES)),
    "body-row": whole(ROW),
    "body-list": whole(list(VALUES)),
    "body-text": whole(json.dumps(completion(tokens=counts(9, 2)))),
    "body-behind": whole(json.dumps(completion(tokens=counts(9, 2))).encode() + b"}\n"),
    "usage-alone": stream(*VALUES[:4], {"usage": counts(9, 2)}),
    "message-last": stream(*VALUES[:3], LAST),
    "delta-text": stream(ROLE, delta("Hel"), delta("lo"), STOP, usage(9, 2)),
    "one-choice": stream(
        *({**value, "choices": value["choices"][0]} for value in VALUES[:4]), usage(9, 2)
    ),
    "noise": stream(b"\0\0", *(event(value) + b"\x1e" for value in VALUES)),
}
CASES = [
    *(
        Case(
            id=f"shape-{name}{form}",
            rule="the text is read, whatever it stands in, and costs what it costs",
            sends=sends,
            asks=asks,
            gets=Gets(text="Hello", done=done),
            pays=vendors(9, 2, "0.000017", outcome="answered"),
        )
        for name, sends in SENT.items()
        for form, asks, done in (("", WITH_USAGE, True), ("-body", Ask(), None))
    ),
    Case(
        id="shape-calls",
        rule="calls of tools that share an index are told apart",
        sends=stream(called("a"), called("b"), delta({}, "tool_calls"), usage(9, 2)),
        asks=WITH_USAGE,
        gets=Gets(done=True, finish="tool_calls", has=('"index":1,"id":"b"',)),
        pays=vendors(9, 2, "0.000017", outcome="answered"),
    ),
    Case(
        id="shape-calls-body",
        rule="and are two calls of one body",
        sends=stream(called("a"), called("b"), delta({}, "tool_calls"), usage(9, 2)),
        gets=Gets(has=('"id":"a"', '"id":"b"'), lacks=("{}{}",)),
        pays=vendors(9, 2, "0.000017", outcome="answered"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_shapes(stage, case: Case) -> None:
    stage.play(case)
