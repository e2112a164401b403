import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.relay.sse import (
    DONE,
    MALFORMED,
    MAX_STRAY_BYTES,
    EventParser,
    EventTooLargeError,
    LineBuffer,
    read_events,
)


def parsed(stream: bytes, *, name: bool = False) -> list:
    lines, parser = LineBuffer(), EventParser()
    text = lines.push(stream) + lines.flush()
    found = [event for line in text.split(b"\n") for event in parser.push_line(line)]
    found += parser.finish()
    return [(event.name, event.value) if name else event.value for event in found]


@pytest.mark.parametrize(
    ("stream", "values"),
    [
        (b'data: {"a":1}\n\n', [{"a": 1}]),
        (b'data:{"a":1}\n\n', [{"a": 1}]),
        (b'data:  {"a":1}  \n\n', [{"a": 1}]),
        (b'data: {"a":1}', [{"a": 1}]),
        (b'data: {"a":1}\ndata: {"a":2}\n', [{"a": 1}, {"a": 2}]),
        (b'data: {"a":\ndata: 1}\n\n', [{"a": 1}]),
        (b'data: {"a":\r\ndata: 1}\r\n\r\n', [{"a": 1}]),
        (b'data: {\ndata: "a":1\ndata: }\n\ndata: {"a":2}\n\n', [{"a": 1}, {"a": 2}]),
        (b'data: x\ndata: {"a":1}\ndata: {"a":2}\n\n', [{"a": 1}, {"a": 2}, MALFORMED]),
        (b"data: [DONE]\n\n", [DONE]),
        (b"data:[DONE]", [DONE]),
        (b'data: {"a":1}\ndata: [DONE]\n', [{"a": 1}, DONE]),
        (b"data: {\ndata: [DONE]\n\n", [MALFORMED, DONE]),
        (b"data: null\n\n", [None]),
        (b"data: oops\n\n", [MALFORMED]),
        (b'data: {"a"}\n\n', [MALFORMED]),
        (b"data\n\ndata:\n\n", [MALFORMED, MALFORMED]),
        (b"Data : [1]\n\n [2]\n\n[3]\n\n", [[1], [3]]),
        (b'data: {\n "a": 1\n}\n\n', [{"a": 1}]),
        (b'data: "[done]"\n\n', [DONE]),
        (b'event: end\ndata: {"a":1}\n\n', [{"a": 1}, DONE]),
        (b"event: done\n\n", [DONE]),
        (b": comment\n\n:\nid: 1\nretry: 5\nnonsense\n\n", []),
        (b'{"error":"x"}\n', [{"error": "x"}]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_what_stands_there_is_read(stream, values):
    assert parsed(stream) == values


def test_an_event_has_its_name_until_the_blank_line():
    stream = b'event: error\ndata: {"a":1}\n\ndata: {"a":2}\n\n'
    assert parsed(stream, name=True) == [(b"error", {"a": 1}), (b"", {"a": 2})]


def test_between_events_the_parser_is_idle():
    parser = EventParser()
    for line, is_idle in (
        (b'data: {"a":1}', True),
        (b"event: x", False),
        (b"", True),
        (b"data: {", False),
        (b": comment", False),
        (b"", True),
    ):
        parser.push_line(line)
        assert parser.is_idle is is_idle


def test_the_first_line_that_belongs_to_nothing_is_kept():
    parser = EventParser()
    for line in (b": comment", b'data: {"a":1}', b"one: " + b"x" * 9_999, b"two"):
        parser.push_line(line)
    assert parser.stray == b"one: " + b"x" * (MAX_STRAY_BYTES - 5)


class TestLineBuffer:
    def test_lines_come_when_they_are_whole(self):
        lines = LineBuffer()
        assert lines.push(b"on") == b""
        assert lines.push(b"e\ntw") == b"one\n"
        assert lines.push(b"o\nthree\n") == b"two\nthree\n"
        assert lines.flush() == b""
        lines.push(b"rest")
        assert lines.flush() == b"rest\n"

    def test_a_line_end_of_two_may_be_cut(self):
        lines = LineBuffer()
        assert lines.push(b"a\r") == b"a\n"
        assert not lines.is_clean
        assert lines.push(b"\nb\r\r\n") == b"b\n\n"
        assert lines.is_clean

    def test_a_line_that_never_ends_is_refused(self):
        lines = LineBuffer(limit_bytes=10)
        lines.push(b"x" * 10)
        with pytest.raises(EventTooLargeError):
            lines.push(b"x")

    @given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b""]), max_size=30))
    def test_any_cut_gives_the_same_lines(self, pieces):
        lines = LineBuffer()
        cut = b"".join(map(lines.push, pieces)) + lines.flush()
        whole = b"".join(pieces).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        assert cut == whole + (b"" if not whole or whole.endswith(b"\n") else b"\n")


def test_an_event_of_many_lines_is_bounded():
    parser = EventParser(limit_bytes=100)
    for _ in range(6):
        parser.push_line(b"data: [1,")
    with pytest.raises(EventTooLargeError):
        parser.push_line(b"data: [1,")


@pytest.mark.parametrize("objects", [b"{}" * 4, b"[{},{},{},{}]"])
def test_the_objects_of_one_event_are_bounded(objects):
    for line in (b"data: " + objects, b"data: \ndata: " + objects):
        assert len(parsed(line)) == 4
        parser = EventParser(most_objects=3)
        with pytest.raises(EventTooLargeError):
            list(map(parser.push_line, (*line.split(b"\n"), b"")))
    assert list(read_events(objects)) == [{}] * 4


def test_one_long_line_is_bounded():
    with pytest.raises(EventTooLargeError):
        EventParser(limit_bytes=100).push_line(b"data: " + b"x" * 100)


INTEGERS = st.integers(-(2**63), 2**64 - 1)  # what is larger is read as a double
VALUES = st.dictionaries(st.sampled_from("abc"), st.text(max_size=5) | INTEGERS, max_size=3)


@given(values=st.lists(VALUES, max_size=6), end=st.sampled_from(["\n\n", "\r\n\r\n", "\r\r", "\n"]))
@settings(deadline=None)
def test_a_recorded_stream_reads_back(values, end):
    stream = "".join(f"data: {json.dumps(value)}{end}" for value in values) + "data: [DONE]"
    assert list(read_events(b"\xef\xbb\xbf" + stream.encode())) == values


def test_a_recorded_object_in_many_short_lines_reads_back():
    value = {"a": [1, 2, 3], "b": {}}
    lines = json.dumps(value, indent=0).split("\n")
    for field in ("", "data: "):
        stream = "".join(f"{field}{line}\n" for line in lines)
        assert list(read_events(stream.encode())) == [value]


@given(st.binary(max_size=200))
@example(b"{\n\x00")
def test_any_bytes_can_be_read(stream):
    list(read_events(stream))
