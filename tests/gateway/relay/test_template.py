"""What passes as an ordinary event, and what must be decoded."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.relay.template import MAX_LEARNED_BYTES, Template, learn
from tests.gateway.relay.playbook import chunk, delta, event, ours


def learned(value: dict, *, spelling: bytes = b"", varies: bool = False, **changes) -> Template:
    line = spelling or event(value, end=b"")
    wanted = {**ours(value), **changes}
    drops = "usage" in value
    if drops:
        wanted.pop("usage", None)
    template = learn(line, value, wanted, drops_usage=drops, created_varies=varies)
    assert template is not None
    return template


ORDINARY = chunk("Hi")
BEHIND = {  # the names behind the choices, as llama.cpp writes them
    "choices": ORDINARY["choices"],
    "created": 1,
    "id": "chatcmpl-v1",
    "model": "vendor-m",
    "object": "chat.completion.chunk",
}


@pytest.mark.parametrize(
    "value",
    [
        ORDINARY,
        BEHIND,
        {"id": "chatcmpl-v1", "choices": ORDINARY["choices"], "model": "vendor-m"},
        {**ORDINARY, "usage": None},
        {**ORDINARY, "usage": None, "obfuscation": "xyz"},
        {"usage_": 1, **BEHIND, "usage": None},
        {**BEHIND, "timings": {"n": [1, 2.5, -3e5]}},
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_events_of_one_shape_get_our_names_and_keep_their_bytes(value, separators):
    def spelled(held: dict) -> bytes:
        return b"data: " + json.dumps(held, separators=separators, ensure_ascii=False).encode()

    template = learned(value, spelling=spelled(value))
    texts = ["", "lo", 'q"\\\n\u0000', "你好", '"model":"vendor-m"', "[DONE]", "NaN"]
    others = [{**value, "choices": delta({"content": text})["choices"]} for text in texts]
    lines = b"".join(spelled(other) + b"\n\n" for other in others)
    out, taken, count = template.run(lines)
    assert (taken, count) == (len(lines), len(texts))
    values = [json.loads(line[6:]) for line in out.split(b"\n\n")[:-1]]
    wanted = [ours(other) for other in others]
    for held in wanted:
        held.pop("usage", None)
    assert values == wanted
    assert [list(held) for held in values] == [list(held) for held in wanted]


@pytest.mark.parametrize(
    "other",
    [
        chunk("x", finish="stop"),
        chunk("x", finish=""),
        {**chunk("x"), "usage": {"prompt_tokens": 1}},
        {**chunk("x"), "usage": None},
        {**chunk("x"), "error": {"message": "x"}},
        {**chunk("x"), "id": "chatcmpl-v2"},
        {**chunk("x"), "model": "vendor-m2"},
        {**chunk("x"), "object": "error"},
        {**chunk("x"), "created": 2},
        chunk("x", choices=[{"index": 1, "delta": {"content": "x"}, "finish_reason": None}]),
        chunk("x", choices=[]),
        delta({"content": None}),
        delta({"reasoning_content": "x"}),
        delta({"content": "x", "role": "assistant"}),
        {"error": "x"},
    ],
)
def test_what_could_matter_has_another_shape(other):
    assert learned(ORDINARY).run(event(other)) == (b"", 0, 0)


@pytest.mark.parametrize("name", ["error", "type", "role"])
def test_a_text_that_tells_something_must_be_the_same(name):
    template = learned({**ORDINARY, name: ""})
    assert template.run(event({**ORDINARY, name: ""}))[2] == 1
    assert template.run(event({**ORDINARY, name: "boom"}))[2] == 0


@pytest.mark.parametrize(
    "text", [b"\xff", b"\x01", b"\t", b"\\x", b"\\u12g4", b"\\", b'"', b'","usage":"', b"\n"]
)
def test_a_text_that_no_decoder_would_take_does_not_pass(text):
    line = event(chunk("@")).replace(b"@", text)
    assert learned(ORDINARY).run(line)[2] == 0


@pytest.mark.parametrize("end", [b"", b"\n", b" \n\n", b"\r\n\r\n", b"\n: c\n\n"])
def test_an_event_must_end_as_one(end):
    assert learned(ORDINARY).run(event(ORDINARY, end=end))[2] == 0


def test_a_run_stops_before_the_first_event_of_another_shape():
    lines = event(chunk("a")) + event(chunk("b"))
    out, taken, count = learned(ORDINARY).run(lines + event(chunk(finish="stop")) + lines)
    assert (taken, count) == (len(lines), 2)
    assert out == event(ours(chunk("a"))) + event(ours(chunk("b")))


@pytest.mark.parametrize("value", [ORDINARY, BEHIND])
def test_the_time_may_vary_where_it_was_seen_to(value):
    template = learned(value, varies=True)
    other = {**value, "created": 1787403997}
    out, _taken, count = template.run(event(other))
    assert count == 1
    assert json.loads(out[6:]) == ours(other)
    for wrong in (b'"created":-2', b'"created":01', b'"created":"2"'):
        assert template.run(event(value).replace(b'"created":1', wrong))[2] == 0


@pytest.mark.parametrize(
    "value",
    [
        chunk("x", finish="stop") | {"id": 5},
        {"id": "v", "model": "m"},
        {**ORDINARY, "call": {"id": "chatcmpl-v1"}},
        {**ORDINARY, "x": [{"model": "vendor-m"}]},
        {**chunk("x" * MAX_LEARNED_BYTES)},
    ],
)
def test_where_it_is_not_clear_nothing_is_learned(value):
    line = event(value, end=b"")
    assert learn(line, value, ours(value), drops_usage=True, created_varies=False) is None


def test_nothing_is_learned_where_more_than_names_must_change():
    wanted = {**ours(ORDINARY), "choices": []}
    line = event(ORDINARY, end=b"")
    assert learn(line, ORDINARY, wanted, drops_usage=True, created_varies=False) is None


def test_streams_of_one_vendor_share_a_pattern():
    one = learned(BEHIND)
    other = {**BEHIND, "id": "chatcmpl-v2"}
    assert learned(other).tail is one.tail
    assert learned(other).run(event(BEHIND))[2] == 0


NAMES = st.sampled_from(["content", "x", "index", "usage", "model", "choices", "id", "error"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(
    head=st.dictionaries(NAMES, VALUES), fields=st.dictionaries(NAMES, VALUES), ascii_=st.booleans()
)
@settings(max_examples=200, deadline=None)
def test_whatever_is_learned_says_the_same_as_decoding(head, fields, ascii_):
    value = {**head, "id": "v1", "model": "m", "choices": [{"index": 0, "delta": fields}]}
    text = json.dumps(value, ensure_ascii=ascii_)
    line = f"data: {text}".encode(errors="surrogatepass")
    template = learn(line, value, ours(value), drops_usage=False, created_varies=False)
    if template is None:
        return
    out, _taken, count = template.run(line + b"\n\n")
    assert count == 1
    assert json.loads(out[6:]) == ours(value)
