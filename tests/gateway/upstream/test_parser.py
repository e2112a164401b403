"""The sans-IO parser, byte by byte and without a network."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.errors import ProtocolError
from gateway.upstream.parser import MAX_HEAD_BYTES, MAX_HEADERS, ResponseParser
from tests.gateway.upstream.vendor import chunked, sized


def fed(*pieces: bytes) -> ResponseParser:
    parser = ResponseParser()
    for piece in pieces:
        parser.feed(piece)
    return parser


def cuts(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


bodies = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
places = st.lists(st.integers(min_value=0, max_value=2000), max_size=12)


@given(bodies, places, st.booleans())
def test_the_same_answer_comes_out_however_it_is_cut(chunks, places, is_chunked):
    body = b"".join(chunks)
    answer = chunked(*chunks) if is_chunked else sized(body)
    parser = ResponseParser()
    received = b""
    for piece in cuts(answer, places):
        assert not parser.complete or not piece
        parser.feed(piece)
        received += parser.take_body()
    assert (parser.status, parser.complete, parser.keep_alive) == (200, True, True)
    assert received == body


@given(bodies, st.integers(min_value=1, max_value=2000), st.booleans())
def test_a_truncated_answer_is_never_complete(chunks, missing, is_chunked):
    answer = chunked(*chunks) if is_chunked else sized(b"".join(chunks))
    parser = fed(answer[: max(0, len(answer) - missing)])
    assert not parser.complete
    assert not parser.ends_with_connection()


@given(st.binary(min_size=1, max_size=30))
def test_bytes_after_the_end_never_reach_the_body(surplus):
    parser = fed(sized(b"body") + surplus)
    assert parser.complete
    assert parser.take_body() == b"body"
    assert parser.keep_alive is (surplus.strip(b"\r\n") == b"")


@given(st.binary(max_size=300), places)
def test_any_bytes_are_read_or_refused(data, places):
    parser = ResponseParser()
    try:
        for piece in cuts(data, places):
            parser.feed(piece)
    except ProtocolError:
        assert not parser.keep_alive
    assert len(parser.body_pieces) <= len(data)


def test_each_answer_on_a_connection_starts_afresh():
    parser = fed(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: 1\r\n\r\n"
        b"1\r\nx\r\n0\r\nTrailer: 2\r\n\r\n"
    )
    assert parser.take_body() == b"x"
    parser.begin()
    parser.feed(sized(b"y", b"B: 3"))
    assert parser.headers == [(b"b", b"3"), (b"content-length", b"1")]
    assert (parser.take_body(), parser.keep_alive) == (b"y", True)


@pytest.mark.parametrize(
    ("head", "is_the_end"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n", False),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
            False,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\n", False),
        (b"HTTP/1.1 100 Continue\r\n\r\n", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False),
        (b"", False),
    ],
)
def test_a_close_ends_only_a_body_without_another_end(head, is_the_end):
    assert fed(head).ends_with_connection() is is_the_end


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "switched protocols"),
        (
            b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
            "switched protocols",
        ),
        (sized(b"x", b"Content-Length: 2"), "Content-Length"),
        (sized(b"x", b"Transfer-Encoding: chunked"), "Transfer-Encoding"),
        (sized(b"x", *[b"X: y"] * MAX_HEADERS), "too many headers"),
        (sized(b"x", b"X: " + b"y" * MAX_HEAD_BYTES), "too large"),
    ],
)
def test_a_head_beyond_what_we_take_is_refused(answer, words):
    with pytest.raises(ProtocolError, match=words):
        fed(answer)


def test_a_head_at_the_bound_is_taken():
    names = b"X" + b"Content-Length" + b"4"
    parser = fed(sized(b"body", b"X: " + b"y" * (MAX_HEAD_BYTES - len(names))))
    assert parser.take_body() == b"body"


@pytest.mark.parametrize(
    ("opening", "endless"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1000),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 10),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"y" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 100),
    ],
    ids=["header", "informational", "chunk extension", "trailers"],
)
def test_what_never_comes_to_a_body_is_bounded(opening, endless):
    pieces = [endless] * (MAX_HEAD_BYTES // len(endless) + 1)
    with pytest.raises(ProtocolError, match="too many bytes"):
        fed(opening, *pieces)


def test_body_before_a_fault_is_kept():
    parser = ResponseParser()
    with pytest.raises(ProtocolError, match="chunk size"):
        parser.feed(chunked(b"good")[:-5] + b"not a size\r\n")
    assert parser.take_body() == b"good"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2   \r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nUpgrade: h2\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["lone line feeds", "padded chunk size", "upgrade offered", "no reason phrase"],
)
def test_odd_answers_of_real_servers_are_read(answer):
    parser = fed(answer)
    assert (parser.complete, parser.take_body()) == (True, b"ok")
