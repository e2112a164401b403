from itertools import pairwise

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.exchanges.masking import DOTS
from gateway.exchanges.streams import mask_stream
from gateway.relay.assemble import fold
from gateway.relay.sse import read_events

KEY = "sk-abcdefghijklmnop1234"


def an_event(delta, index: int = 0) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": None}
    return b"data: " + orjson.dumps({"id": "chatcmpl-v1", "choices": [choice]}) + b"\n\n"


def a_stream(*texts: str) -> bytes:
    return b"".join(an_event({"content": text}) for text in texts) + b"data: [DONE]\n\n"


def text_of(stream: bytes, index: int = 0) -> str:
    return fold(read_events(stream))["choices"][index]["message"]["content"]


def test_a_stream_without_secrets_is_returned_itself() -> None:
    stream = a_stream("Hello", " there") * 200
    assert mask_stream(stream) is stream


def test_a_key_in_one_event_is_masked_there() -> None:
    assert mask_stream(a_stream("a ", f"{KEY} b")) == a_stream("a ", f"{DOTS} b")


def test_a_key_over_several_events_is_masked_where_it_begins() -> None:
    masked = mask_stream(a_stream("my key sk-", "abcdef", "ghijklmnop", "1234 and", " more"))
    assert masked == a_stream(f"my key {DOTS}", "", "", " and", " more")


def test_keys_in_the_arguments_of_a_tool_call_are_found() -> None:
    def call(arguments: str) -> bytes:
        return an_event({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]})

    stream = call('{"api_') + call('key": "CAN') + call('ARY-1"}')
    masked = mask_stream(stream)
    assert b"ARY" not in masked
    message = fold(read_events(masked))["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"].startswith("{")


def test_choices_that_interleave_are_read_apart() -> None:
    stream = b"".join(
        an_event({"content": text}, index)
        for index, text in ((0, "sk-abcdef"), (1, "no "), (0, "ghijklmnop"), (1, "key"))
    )
    masked = mask_stream(stream)
    assert (text_of(masked, 0), text_of(masked, 1)) == (DOTS, "no key")


def test_an_error_at_the_end_is_looked_at() -> None:
    stream = (
        a_stream(*["word "] * 200)
        + b'data: {"error": {"message": "bad key '
        + (KEY.encode() + b'"}}\n\n')
    )
    assert KEY.encode() not in mask_stream(stream)


def test_what_cannot_be_mended_is_kept_assembled() -> None:
    whole = orjson.dumps({"choices": [{"index": 0, "delta": {"content": f"{KEY[:9]}"}}]})
    half = whole.index(b'"delta"')
    split = b"data: " + whole[:half] + b"\ndata: " + whole[half:] + b"\n\n"
    masked = mask_stream(split + an_event({"content": KEY[9:]}))
    assert KEY[9:].encode() not in masked
    assert orjson.loads(masked)["choices"][0]["message"]["content"] == f"sk-{DOTS}"


@given(st.lists(st.integers(1, len(KEY)), max_size=6), st.text(max_size=8), st.text(max_size=8))
def test_wherever_a_key_is_split_it_leaves(cuts: list[int], before: str, after: str) -> None:
    text = f"{before} {KEY} {after}"
    edges = [0, *sorted(len(before) + cut for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    masked = mask_stream(a_stream(*pieces))
    assert KEY[4:].encode() not in masked
    assert text_of(masked) == f"{before} {DOTS} {after}"
