"""Objects that share a line, a list or a field with others are read like those that do not."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.relay.playbook import (
    DONE,
    JSON,
    ROLE,
    STOP,
    body,
    chunk,
    client_values,
    completion,
    counts,
    event,
    events,
    relay,
    run,
    text_of,
    told,
    usage_chunk,
)

VALUES = (ROLE, chunk("Hel"), chunk("lo"), STOP, usage_chunk(9, 2))
HALF = body(chunk("lost"))[:-5]


def in_a_row(between: bytes, values=VALUES) -> bytes:
    return between.join(map(body, values))


def in_lines(value: object) -> bytes:
    """An event of many data lines."""
    lines = json.dumps(value, indent=1).encode().split(b"\n")
    return b"".join(b"data: %b\n" % line for line in lines) + b"\n"


SHAPES = {
    "field twice": events(*VALUES, lead=b"data: data: ") + b"data: data: [DONE]\n\n",
    "field thrice": events(*VALUES, lead=b"data:data: DATA: ") + DONE,
    "in a row": b"data: " + in_a_row(b"") + b"\n\n" + DONE,
    "blanks between": b"data: " + in_a_row(b" \t") + b"\n\n" + DONE,
    "commas between": b"data: " + in_a_row(b", ") + b"\n\n" + DONE,
    "a comma behind": events(*VALUES, end=b",\n\n") + DONE,
    "fields between": b"data: " + in_a_row(b"data: ") + b"\n\n" + DONE,
    "line ends escaped": b"data: " + in_a_row(rb"\n\ndata: ") + rb"\n\n" + b"\n\n" + DONE,
    "the end mark behind": b"data: " + in_a_row(b"") + b"[DONE]\n\n",
    "the end mark in the row": b"data: " + in_a_row(b"data: ") + b"data: [DONE]\n\n",
    "data lines": events(*VALUES, end=b"\n") + b"\n" + DONE,
    "pairs in data lines": b"data: "
    + b"\ndata: ".join(in_a_row(b"", VALUES[at : at + 2]) for at in (0, 2, 4))
    + b"\n\n"
    + DONE,
    "begun on one line, ended with the next": b"data: "
    + in_a_row(b"").replace(b'"choices"', b'\ndata: "choices"')
    + b"\n\n"
    + DONE,
    "a list": event(list(VALUES)) + DONE,
    "lists of one": events(*([value] for value in VALUES)) + DONE,
    "a list in lines": in_lines(list(VALUES)) + DONE,
    "lists in a row": event(list(VALUES[:2])).rstrip() + body(list(VALUES[2:])) + b"\n\n" + DONE,
    "encoded twice": events(*(json.dumps(value) for value in VALUES)) + DONE,
    "a mark before each": b"".join(b"\xef\xbb\xbf" + event(value) for value in VALUES) + DONE,
}
BODIES = {
    "a row": in_a_row(b""),
    "lines": in_a_row(b"\n"),
    "a row of lines": b"".join(json.dumps(value, indent=1).encode() for value in VALUES),
    "a list": body(list(VALUES)),
    "two lists": body(list(VALUES[:2])) + body(list(VALUES[2:])),
    "a row with its end mark": in_a_row(b"") + b"\ndata: [DONE]\n\n",
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_events_reads_the_same(name, stream):
    plain, shaped = relay(stream=stream, usage=True), relay(stream=stream, usage=True)
    expected = told(plain, run(plain, events(*VALUES) + DONE))
    assert told(shaped, run(shaped, SHAPES[name])) == expected


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", BODIES)
def test_every_shape_of_a_body_reads_the_same(name, stream):
    plain, shaped = relay(stream=stream, usage=True), relay(stream=stream, usage=True)
    expected = told(plain, run(plain, events(*VALUES) + DONE))
    assert told(shaped, run(shaped, BODIES[name], headers=JSON)) == expected


@given(
    joints=st.lists(
        st.sampled_from([b"", b" ", b",", b"data: ", b"\n\ndata: ", b"\ndata: ", b"\r\ndata:"]),
        min_size=len(VALUES) - 1,
        max_size=len(VALUES) - 1,
    ),
    lists=st.sets(st.integers(0, len(VALUES) - 1)),
    lead=st.sampled_from([b"data: ", b"data:data: "]),
    cuts=st.lists(st.floats(0, 1), max_size=8),
    stream=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_any_shape_in_any_chunking_reads_the_same(joints, lists, lead, cuts, stream):
    pieces = [body([value] if at in lists else value) for at, value in enumerate(VALUES)]
    sent = lead + pieces[0]
    sent += b"".join(joint + piece for joint, piece in zip(joints, pieces[1:], strict=True))
    sent += b"\n\n" + DONE
    places = sorted({int(cut * len(sent)) for cut in cuts} | {0, len(sent)})
    plain, shaped = relay(stream=stream), relay(stream=stream)
    expected = told(plain, run(plain, events(*VALUES) + DONE))
    reads = [sent[a:b] for a, b in itertools.pairwise(places)]
    assert told(shaped, run(shaped, *reads)) == expected


@pytest.mark.parametrize(
    "sent",
    [
        b"data: " + in_a_row(b"", VALUES[:4]) + HALF + b"\n\n",
        events(*VALUES[:4]) + b"data: " + HALF + b"\n\n",
        b"data: " + HALF + b"\n" + events(*VALUES[:4], end=b"\n"),
    ],
)
def test_what_is_cut_off_hides_nothing_and_is_counted(sent):
    answer = relay()
    assert text_of(run(answer, sent + DONE)) == "Hello"
    assert answer.skipped_events == 1


def test_an_error_in_a_list_is_an_error():
    answer = relay()
    run(answer, event([{"error": {"message": "slow down", "code": 429}}]))
    assert answer.failure.error.status == 429
    answer = relay()
    run(answer, body({"error": {"message": "no"}}) * 2, status=400, headers=JSON)
    assert answer.failure.vendor_message == "no"


def test_usage_needs_no_choices():
    answer = relay(usage=True)
    out = run(answer, events(*VALUES[:4], {"usage": counts(9, 2)}) + DONE)
    assert client_values(out)[-2]["usage"] == counts(9, 2)
    answer = relay()
    run(answer, event({"usage": counts(9, 0)}) + DONE)
    assert answer.failure is not None
    assert answer.raw_usage == counts(9, 0)


def test_what_stands_behind_a_body_is_no_harm():
    for stream in (True, False):
        answer = relay(stream=stream)
        out = run(answer, body(completion(usage=counts(3, 2))) + b"}\n", headers=JSON)
        text = text_of(out) if stream else json.loads(out)["choices"][0]["message"]["content"]
        assert (text, answer.raw_usage) == ("Hello", counts(3, 2))


def test_a_body_encoded_twice_is_read():
    sent = body(body(completion(usage=counts(3, 2))).decode())
    value = json.loads(run(relay(stream=False), sent, headers=JSON))
    assert value["choices"] == completion()["choices"]


def test_a_fold_of_events_in_many_lines_is_bounded():
    answer = relay(stream=False, max_body_bytes=2_000)
    answer.receive_head(200, JSON)
    for _ in range(40):
        answer.receive(in_lines(chunk("A" * 100)))
    assert answer.failure is not None
    assert answer.failure.vendor_message == "answer or event too large"


def test_choices_beyond_all_bounds_are_the_first_one():
    answer = relay(stream=False)
    far = [chunk(choices=[{"index": at, "delta": {"content": "a"}}]) for at in (0, 128, -1)]
    value = json.loads(run(answer, events(*far, STOP) + DONE))
    assert [choice["message"]["content"] for choice in value["choices"]] == ["aaa"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "odd",
    [
        {**chunk(), "choices": {"index": 0, "delta": {"content": "lo"}, "finish_reason": None}},
        chunk(choices=[{"index": 0, "delta": "lo", "finish_reason": None}]),
        chunk(choices={"index": 0, "delta": "lo", "finish_reason": None}),
        chunk(
            choices=[
                {
                    "index": 0,
                    "delta": {"content": "lo"},
                    "message": {"content": "lo"},
                    "finish_reason": None,
                }
            ]
        ),
    ],
)
def test_a_choice_without_its_list_or_its_object_loses_no_text(odd, stream):
    answer = relay(stream=stream)
    out = run(answer, events(ROLE, chunk("Hel"), odd, STOP) + DONE)
    text = text_of(out) if stream else json.loads(out)["choices"][0]["message"]["content"]
    assert text == "Hello"


@pytest.mark.parametrize("message", ["Hello", ""])
@pytest.mark.parametrize("extra", [{}, {"delta": {}}, {"delta": None}])
def test_a_whole_message_behind_its_deltas_says_nothing_new(message, extra):
    last = {"index": 0, "message": {"role": "assistant", "content": message}, **extra}
    sent = events(*VALUES[:3], chunk(choices=[{**last, "finish_reason": "stop"}])) + DONE
    out = run(relay(), sent)
    assert text_of(out) == "Hello"
    *_, closing, _done = client_values(out)
    assert closing["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    folded = json.loads(run(relay(stream=False), sent))["choices"][0]
    assert (folded["message"]["content"], folded["finish_reason"]) == ("Hello", "stop")


@pytest.mark.parametrize("extra", [{}, {"delta": {}}])
def test_messages_instead_of_deltas_are_pieces_of_a_text(extra):
    pieces = [
        chunk(choices=[{"index": 0, "message": {"content": text}, "finish_reason": None, **extra}])
        for text in ("Hel", "lo")
    ]
    assert text_of(run(relay(), events(ROLE, *pieces, STOP) + DONE)) == "Hello"
    value = json.loads(run(relay(stream=False), events(ROLE, *pieces, STOP) + DONE))
    assert value["choices"][0]["message"]["content"] == "Hello"


def test_noise_before_a_line_is_none_of_it():
    sent = b"\x00\x00" + b"\x1e".join(event(value) for value in VALUES) + b"\x00" + DONE
    plain, noisy = relay(), relay()
    expected = told(plain, run(plain, events(*VALUES) + DONE))
    assert told(noisy, run(noisy, *(bytes([byte]) for byte in sent))) == expected
    value = json.loads(run(relay(stream=False), b"\x00\n" + body(completion()), headers=JSON))
    assert value["choices"] == completion()["choices"]
