"""Any cut of a stream's bytes reads the same."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.qualification.answers import BrokenAnswerError, Streamed, StreamReader, whole
from gateway.relay.sse import MAX_EVENT_BYTES


def chunk(**delta) -> dict:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}


EVENTS = [chunk(role="assistant", content=""), chunk(content="fär"), chunk(content="thing")]
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
STREAM = b": hello\n\n" + b"".join(
    b"data: %b\r\n\r\n" % text
    for text in [
        *(json.dumps(event, ensure_ascii=False).encode() for event in EVENTS),
        b"no JSON",
        json.dumps({"choices": [], "usage": USAGE}).encode(),
        b"[DONE]",
    ]
)


def read(pieces: list[bytes]) -> Streamed:
    streamed = Streamed(200, "text/event-stream")
    reader = StreamReader(streamed, started_s=1.0)
    for number, piece in enumerate(pieces):
        reader.push(piece, 1.5 + number)
    reader.finish(99.0)
    return streamed


@given(st.lists(st.integers(0, len(STREAM)), max_size=6).map(sorted))
def test_any_cut_reads_the_same(cuts):
    ends = [0, *cuts, len(STREAM)]
    streamed = read([STREAM[a:b] for a, b in pairwise(ends)])
    assert streamed.values == [*EVENTS, "MALFORMED", {"choices": [], "usage": USAGE}]
    assert (streamed.is_done, streamed.is_one_body, streamed.pieces) == (True, False, 2)
    assert streamed.usage == USAGE
    assert streamed.completion["choices"][0]["message"]["content"] == "färthing"


def test_the_first_token_is_the_first_piece_of_the_answer():
    texts = [b"data: %b\n\n" % json.dumps(event).encode() for event in EVENTS]
    assert read(texts).first_token_ms == 1_500
    assert read(texts[:1]).first_token_ms is None


def test_one_body_is_seen_for_what_it_is():
    assert read([b" \n", b'{"choices":', b" []}"]).is_one_body
    assert not read([b"data: {}\n\n"]).is_one_body


def test_an_event_without_an_end_is_refused():
    reader = StreamReader(Streamed(200, ""), started_s=0.0)
    reader.push(b"x" * MAX_EVENT_BYTES, 0.0)
    with pytest.raises(BrokenAnswerError):
        reader.push(b"x", 0.0)


@pytest.mark.parametrize("body", [b"[]", b'{"choices": []}', b'{"choices": [1]}', b"html", b"\xff"])
def test_what_is_no_completion_has_none(body):
    assert whole(200, body).completion is None


def test_a_completion_is_one():
    body = b'{"choices": [{"index": 0}]}'
    assert whole(200, body).completion == {"choices": [{"index": 0}]}
