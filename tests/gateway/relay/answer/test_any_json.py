"""Any JSON value in any place of an answer: nothing raises, and the client gets what is legal."""

import contextlib
import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.relay.json_text import encode
from gateway.relay.settling import read_usage
from tests.gateway.relay.playbook import (
    DONE,
    ID,
    JSON,
    ROLE,
    STOP,
    chunk,
    client_values,
    completion,
    counts,
    delta,
    relay,
    run,
    usage_chunk,
)

CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
DETAILS = {"prompt_tokens_details": {"cached_tokens": 1}}
STREAM = [
    ROLE,
    delta({"content": "Hel", "reasoning_content": "hm", "reasoning_details": [{"text": "x"}]}),
    delta({"tool_calls": [CALL]}, logprobs={"content": [{"token": "a"}]}),
    delta({"tool_calls": [CALL]}),
    chunk("lo", error=None, x_groq={"usage": counts(1, 1)}),
    STOP,
    usage_chunk(9, 2),
]
WHOLE = completion(usage={**counts(9, 2), **DETAILS}, error=None)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "error", "stop", "1", "\ud800", "\x00", '{"a":1}', "[DONE]"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["content", "index", "delta", "message", "id", "error", "usage"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=4,
)


def places(value, path=()):
    """Yield the path of every value inside."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for name, child in children:
        yield (*path, name)
        if isinstance(child, dict | list):
            yield from places(child, (*path, name))


def with_odd(value, spots):
    """Return the value with odd ones in these places, as far as they are still there."""
    changed = copy.deepcopy(value)
    for (*steps, last), odd in spots:
        holder = changed
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for step in steps:
                holder = holder[step]
            holder[last] = odd
    return changed


def spots_in(value):
    spot = st.tuples(st.sampled_from(list(places(value))), ODD)
    return st.lists(spot, min_size=1, max_size=4)


def check(out: bytes, answer, *, stream: bool) -> None:
    assert answer.ended
    read_usage(answer.raw_usage, has_output=answer.has_output)
    if answer.failure is not None:
        assert out == b""
        json.loads(answer.failure.error.body())
    elif stream:
        *values, last = client_values(out)
        assert (last == "[DONE]") != ("error" in last)
        assert all(value["id"] == ID for value in values)
    else:
        assert json.loads(out)["id"] == ID


@pytest.mark.parametrize("stream", [True, False])
@given(spots=spots_in(STREAM), again=st.booleans())
@settings(max_examples=500, deadline=None)
def test_in_a_stream(stream, spots, again):
    values = with_odd(STREAM, spots)
    if again:
        values = [value for value in values for _ in range(2)]
    sent = b"".join(b"data: %b\n\n" % encode(value) for value in values)
    answer = relay(stream=stream, usage=True)
    check(run(answer, sent + DONE), answer, stream=stream)


@pytest.mark.parametrize("stream", [True, False])
@given(spots=spots_in(WHOLE))
@settings(max_examples=200, deadline=None)
def test_in_a_body(stream, spots):
    answer = relay(stream=stream, usage=True)
    out = run(answer, encode(with_odd(WHOLE, spots)), headers=JSON)
    check(out, answer, stream=stream)


@pytest.mark.parametrize("status", [200, 400, 429, 500])
@given(error=ODD, path=st.sampled_from(["message", "code", "type", "param", "error", "detail"]))
@settings(max_examples=100, deadline=None)
def test_in_an_error(status, error, path):
    for body in (error, {"error": error}, {"error": {path: error}}, {path: error}, [error]):
        answer = relay()
        out = run(answer, encode(body), status=status, headers=JSON)
        check(out, answer, stream=True)
