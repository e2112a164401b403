"""Any cut of the same bytes, and any bytes at all."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.relay.failures import Fault
from tests.gateway.relay.playbook import (
    DONE,
    HELLO,
    ID,
    MODEL,
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
    told,
    usage_chunk,
)

EXCHANGES = [
    HELLO + event(usage_chunk(9, 2)) + DONE,
    events(*({**v, "usage": None} for v in (ROLE, chunk("a"), chunk("b"), chunk("c"), STOP))),
    events(ROLE, chunk("x"), chunk("y"), chunk("z"), STOP, usage_chunk(1, 1), end=b"\r\n\r\n"),
    events(ROLE, chunk("x"), chunk("y"), STOP, end=b"\r\r", lead=b"data:") + b"data:[DONE]\r\r",
    events(ROLE, chunk("x"), chunk("y"), chunk("z"), STOP, end=b"\n") + b"data: [DONE]\n",
    b": hi\n\n" + events(ROLE, chunk("x"), chunk("y"), chunk("你好"), chunk("\\"), chunk('"')),
    events(ROLE, chunk("x"), chunk("y"), {**chunk("z"), "model": "other"}, chunk("w"), STOP),
    events(ROLE, chunk("x"), chunk("y"), {"error": {"message": "no"}}, chunk("w")) + DONE,
    events(ROLE, chunk("x"), chunk("y")) + b"data: {oops\ndata: null\n\n" + event(chunk("z")),
    events(chunk("x"), chunk("y")) + event(chunk("z")).replace(b"z", b"\xff") + event(STOP) + DONE,
    events(*({**chunk(f"{at}"), "created": at} for at in range(6)), STOP) + DONE,
    events(*({**chunk("v"), "usage": counts(3, at)} for at in range(1, 4)), STOP) + DONE,
    events(ROLE, chunk("x"), chunk("y"), chunk("A" * 600), chunk("z"), STOP) + DONE,
    HELLO + DONE + events(chunk("late"), usage_chunk(2, 2)),
    b"\xef\xbb\xbf  \n" + HELLO,
    body(completion(usage=counts(3, 2))),
    b" \n " + body(completion()) + b"\ndata: [DONE]\n\n",
    event({"error": {"message": "first", "code": 400}}) + DONE,
    b"event: error\ndata: {}\n\n",
    b"<html>",
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("sent", EXCHANGES)
def test_byte_by_byte_gives_the_same_as_at_once(sent, stream):
    for usage in (True, False):
        whole = relay(stream=stream, usage=usage, max_event_bytes=500)
        expected = told(whole, run(whole, sent))
        bytewise = relay(stream=stream, usage=usage, max_event_bytes=500)
        assert told(bytewise, run(bytewise, *(bytes([b]) for b in sent))) == expected


@given(
    sent=st.sampled_from(EXCHANGES),
    cuts=st.lists(st.floats(0, 1), max_size=12),
    stream=st.booleans(),
    usage=st.booleans(),
    fault=st.sampled_from([None, Fault.CONNECTION_LOST]),
)
@settings(max_examples=300, deadline=None)
def test_any_chunking_of_the_same_bytes_gives_the_same(sent, cuts, stream, usage, fault):
    places = sorted({int(cut * len(sent)) for cut in cuts} | {0, len(sent)})
    reads = [sent[a:b] for a, b in itertools.pairwise(places)]
    whole = relay(stream=stream, usage=usage, max_event_bytes=500)
    cut = relay(stream=stream, usage=usage, max_event_bytes=500)
    expected = told(whole, run(whole, sent, fault=fault))
    assert told(cut, run(cut, *reads, fault=fault)) == expected


PIECES = st.one_of(
    st.sampled_from(
        [
            b"data: ",
            b"data:",
            b"\n",
            b"\n\n",
            b"\r\n",
            b"\r",
            b": c\n",
            b"event: error\n",
            b"{",
            b"}",
            b"null\n\n",
            DONE,
            event(ROLE),
            event(chunk("Hi")),
            event(chunk("Ho")),
            event(STOP),
            event(usage_chunk(1, 2)),
            event({"error": "x"}),
            event({**chunk("a"), "choices": [None, 1, {"index": "x", "delta": []}]}),
            event({"choices": {"a": 1}}),
            event({**chunk("b"), "usage": "many"}),
            event({**chunk("c"), "id": 5, "model": None}),
            body(completion()),
        ]
    ),
    st.binary(max_size=8),
)


@given(pieces=st.lists(PIECES, max_size=30), stream=st.booleans(), usage=st.booleans())
@settings(max_examples=400, deadline=None)
def test_whatever_arrives_the_client_gets_a_well_formed_answer_or_an_error(pieces, stream, usage):
    answer = relay(stream=stream, usage=usage)
    out = run(answer, *pieces)
    assert answer.ended
    assert answer.complete != bool(answer.failure or answer.mid_stream_failure)
    if not out:
        assert answer.failure is not None
        return
    if not stream:
        value = json.loads(out)
        assert value["id"] == ID
        assert value["object"] == "chat.completion"
        return
    values = client_values(out)
    assert ("error" in values[-1]) != (values[-1] == "[DONE]")
    assert all(value["id"] == ID and value["model"] == MODEL for value in values[:-1])


@given(pieces=st.lists(PIECES, max_size=20), stream=st.booleans())
@settings(max_examples=200, deadline=None)
def test_reading_byte_by_byte_cannot_be_seen_whatever_arrives(pieces, stream):
    sent = b"".join(pieces)
    whole, bytewise = relay(stream=stream), relay(stream=stream)
    expected = told(whole, run(whole, sent))
    assert told(bytewise, run(bytewise, *(bytes([b]) for b in sent))) == expected
