"""How a request's body is read: bounded, in pieces, and no further than its client stays."""

import asyncio
from typing import Any

import orjson
import pytest

from gateway import hotpath
from gateway.hotpath import HotPath
from gateway.relay.headers import Headers


class Client:
    """Plays a request's body and keeps what it is answered."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages = list(messages)
        self.sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        return self._messages.pop(0) if self._messages else await asyncio.Event().wait()

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def unread(self) -> int:
        return len(self._messages)

    @property
    def error(self) -> tuple[int, str]:
        start, body = self.sent
        return start["status"], orjson.loads(body["body"])["error"]["code"]


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


LEFT = {"type": "http.disconnect"}


def read(client: Client, headers: Headers = ()) -> bytes:
    return asyncio.run(hotpath._read_body({"headers": list(headers)}, client.receive))


def answer(client: Client, headers: Headers = ()) -> None:
    scope = {"type": "http", "method": "POST", "path": hotpath.PATH, "headers": list(headers)}
    asyncio.run(HotPath(runtime=None)(scope, client.receive, client.send))


@pytest.fixture
def ten_bytes(monkeypatch) -> None:
    monkeypatch.setattr(hotpath, "MAX_BODY_BYTES", 10)


def test_a_body_comes_in_one_piece_or_many() -> None:
    assert read(Client(piece(b"0123456789"))) == b"0123456789"
    assert read(Client(piece(b"01", more=True), piece(b"", more=True), piece(b"23"))) == b"0123"
    assert read(Client(piece(b""))) == b""
    assert read(Client({"type": "http.request"})) == b""


def test_a_body_that_is_too_large_is_written_to_its_end_before_it_is_answered(ten_bytes) -> None:
    client = Client(piece(b"0123456", more=True), piece(b"7890"), LEFT)
    answer(client, [(b"content-length", b"11")])
    assert client.error == (413, "request_too_large")
    assert client.unread == 1


def test_who_asks_before_it_writes_is_answered_at_once(ten_bytes) -> None:
    client = Client(piece(b"0" * 11))
    answer(client, [(b"content-length", b"11"), (b"expect", b"100-continue")])
    assert client.error == (413, "request_too_large")
    assert client.unread == 1


def test_a_client_that_announces_more_than_it_writes_is_answered(ten_bytes, monkeypatch) -> None:
    monkeypatch.setattr(hotpath, "DROPPED_SECONDS", 0)
    client = Client(piece(b"01", more=True))
    answer(client, [(b"content-length", b"11")])
    assert client.error == (413, "request_too_large")


def test_a_body_that_grows_too_large_is_read_no_further_than_twice_the_bound(ten_bytes) -> None:
    """A chunked body says no length, or a client lies."""
    client = Client(*[piece(b"0123", more=True) for _ in range(9)])
    answer(client)
    assert client.error == (413, "request_too_large")
    assert client.unread == 3
    headers = dict(client.sent[0]["headers"])
    assert headers[b"content-type"] == b"application/json"
    assert int(headers[b"content-length"]) == len(client.sent[1]["body"])
    assert headers[b"x-should-retry"] == b"false"


def test_a_body_of_just_the_bound_is_read(ten_bytes) -> None:
    assert read(Client(piece(b"0123456789")), [(b"content-length", b"10")]) == b"0123456789"


def test_a_client_that_leaves_before_its_body_is_answered_nothing() -> None:
    client = Client(piece(b"01", more=True), LEFT)
    answer(client)
    assert client.sent == []
