"""The head of a request: what is written, and what never is."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.errors import InvalidRequest
from gateway.upstream.request import OWNED_HEADERS, Origin, encode_head

ORIGIN = Origin.from_base_url("http://vendor.example:8000/v1/")


@pytest.mark.parametrize(
    ("base_url", "host", "port", "is_tls", "prefix", "authority"),
    [
        ("http://h", "h", 80, False, "", b"h"),
        ("http://h:80/", "h", 80, False, "", b"h"),
        ("https://h", "h", 443, True, "", b"h"),
        ("https://h:80", "h", 80, True, "", b"h:80"),
        ("http://H:1/v1", "h", 1, False, "/v1", b"h:1"),
        ("http://h/a/b/", "h", 80, False, "/a/b", b"h"),
        ("http://[::1]:8000/v1", "::1", 8000, False, "/v1", b"[::1]:8000"),
        ("https://[2001:db8::1]", "2001:db8::1", 443, True, "", b"[2001:db8::1]"),
        ("http://[fe80::1%25lo]:1", "fe80::1%25lo", 1, False, "", b"[fe80::1]:1"),
        ("http://bücher.example", "xn--bcher-kva.example", 80, False, "", b"xn--bcher-kva.example"),
    ],
)
def test_a_base_url_is_taken_apart(base_url, host, port, is_tls, prefix, authority):
    assert Origin.from_base_url(base_url) == Origin(host, port, is_tls, prefix, authority)


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "h:80",
        "ftp://h",
        "http://",
        "http:///v1",
        "http://user:secret@h",
        "http://h?x=1",
        "http://h#x",
        "http://h:99999",
        "http://h:port",
        "http://h/a b",
        "http://h/ä",
        "http://[::1",
    ],
)
def test_another_base_url_is_refused_without_being_repeated(base_url):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the words vary
        Origin.from_base_url(base_url)
    assert "secret" not in str(refused.value)


def test_the_head_is_exactly_this():
    head = encode_head(ORIGIN, b"POST", "/chat?x=%20", [(b"Accept", b"*/*"), (b"x-b", b"")], 12)
    assert head == (
        b"POST /v1/chat?x=%20 HTTP/1.1\r\nhost: vendor.example:8000\r\n"
        b"Accept: */*\r\nx-b: \r\ncontent-length: 12\r\n\r\n"
    )


@pytest.mark.parametrize("name", sorted(OWNED_HEADERS))
def test_a_header_that_frames_the_message_is_refused(name):
    with pytest.raises(InvalidRequest, match="belongs to the client"):
        encode_head(ORIGIN, b"POST", "/x", [(name.title(), b"1")], 0)


@pytest.mark.parametrize("path", ["", "x", "/a b", "/a\r\nx: y", "/ä", "/\x00", "//\t"])
def test_a_path_that_is_not_a_target_is_refused(path):
    with pytest.raises(InvalidRequest):
        encode_head(ORIGIN, b"POST", path, [], 0)


@pytest.mark.parametrize("method", [b"", b"post", b"POST /x", b"GET\r\n"])
def test_a_method_that_is_not_one_is_refused(method):
    with pytest.raises(InvalidRequest):
        encode_head(ORIGIN, method, "/x", [], 0)


class Recorder:
    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))


nasty = st.binary(max_size=12) | st.text("ab:; \t\r\n\0é", max_size=8).map(str.encode)


@given(st.lists(st.tuples(nasty, nasty), max_size=5))
def test_a_head_that_is_sent_reads_back_as_the_headers_that_were_given(headers):
    try:
        head = encode_head(ORIGIN, b"POST", "/x", headers, 0)
    except InvalidRequest:
        return
    recorder = Recorder()
    httptools.HttpRequestParser(recorder).feed_data(head)
    sent = [(name, value.strip(b" \t")) for name, value in headers]
    assert recorder.headers[1:-1] == sent
