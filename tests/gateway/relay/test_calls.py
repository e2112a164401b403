import pytest

from gateway.relay.calls import MAX_CALLS, CallNumbers
from tests.gateway.relay.playbook import DONE, client_values, delta, events, relay, run


def call(index=None, call_id=None, name=None) -> dict:
    function = {"arguments": "1", **({"name": name} if name else {})}
    at = {} if index is None else {"index": index}
    return {**at, **({"id": call_id} if call_id else {}), "function": function}


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        ([call(0, "a", "f"), call(0), call(1, "b", "g"), call(0), call(1)], [0, 0, 1, 0, 1]),
        ([call(None, "a", "f"), call(), call(None, "b", "g"), call()], [0, 0, 1, 1]),
        ([call(None, "a", "f"), call(None, "a")], [0, 0]),
        ([call(None, None, "f"), call(), call(None, None, "g")], [0, 0, 1]),
        ([call(0, "a", "f"), call(0, "b", "g"), call(0), call(0, "c", "h")], [0, 1, 1, 2]),
        ([call(0, "a", "f"), call(0, "b"), call(0, "c")], [0, 0, 0]),
        ([call(0, "a", "f"), call(0, "b", "g"), call(1, "c", "h"), call(1)], [0, 1, 2, 2]),
        ([call(3, "a", "f"), call(3)], [3, 3]),
        ([call("0", "a", "f"), call("0")], [0, 0]),
        ([call(), call()], [0, 0]),
    ],
)
def test_each_piece_gets_the_number_of_its_call(pieces, numbers):
    known = CallNumbers()
    choices = [known.numbered(delta({"tool_calls": [piece]})["choices"][0]) for piece in pieces]
    assert [choice["delta"]["tool_calls"][0]["index"] for choice in choices] == numbers
    several = CallNumbers().numbered(delta({"tool_calls": pieces})["choices"][0])
    assert [one["index"] for one in several["delta"]["tool_calls"]] == numbers


@pytest.mark.parametrize("fields", [{}, {"content": "a"}, {"tool_calls": []}, {"tool_calls": [1]}])
def test_what_has_no_calls_or_right_ones_is_left_alone(fields):
    for choice in (
        delta(fields)["choices"][0],
        delta({**fields, "tool_calls": [call(0, "a", "f"), call(1, "b", "g")]})["choices"][0],
        {"index": 0},
        {"delta": None},
    ):
        assert CallNumbers().numbered(choice) is choice


def test_endless_calls_are_bounded():
    known = CallNumbers()
    for number in range(MAX_CALLS + 9):
        choice = known.numbered(
            delta({"tool_calls": [call(None, f"c{number}", "f")]})["choices"][0]
        )
    assert "index" not in choice["delta"]["tool_calls"][0]


def test_a_client_gets_calls_that_it_can_tell_apart_however_they_come():
    """Also where events like them have passed by their bytes before."""
    first = [delta({"tool_calls": [call(0, "a", "f")]}), *[delta({"tool_calls": [call(0)]})] * 8]
    second = [delta({"tool_calls": [call(0, "b", "g")]}), *[delta({"tool_calls": [call(0)]})] * 8]
    sent = events(*first, *second, delta({}, finish_reason="tool_calls")) + DONE
    out = run(relay(), sent)
    assert out == run(relay(), *(bytes([byte]) for byte in sent))
    *chunks, _stop, _done = client_values(out)
    numbers = [one["choices"][0]["delta"]["tool_calls"][0]["index"] for one in chunks]
    assert numbers == [0] * 9 + [1] * 9
