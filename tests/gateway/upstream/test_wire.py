"""A vendor that closes an idle connection in the very moment in which it is used."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Self

import pytest

from gateway.upstream import wire as module
from gateway.upstream.errors import ConnectionLost
from tests.gateway.upstream.play import closing, post

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
RESET = struct.pack("ii", 1, 0)
PATIENCE_S = 10.0


class Closer:
    """A blocking vendor in a thread: each connection is one call of `serve`, then it is closed.

    Not on the client's loop, so that it can close while that loop has not looked yet.
    """

    def __init__(
        self, *serve: Callable[["Closer", socket.socket], None], context: ssl.SSLContext | None
    ) -> None:
        self._serve = serve
        self._context = context
        self.requests = 0
        self.is_closed = threading.Event()
        self.may_go_on = threading.Event()

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if self._context is None else "https"
        self.url = f"{scheme}://localhost:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_go_on.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        for serve in self._serve:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(PATIENCE_S)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection, contextlib.suppress(ConnectionError):
                serve(self, connection)
            self.is_closed.set()

    def read(self, connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"\r\n\r\n{}"):
            piece = connection.recv(65_536)
            if not piece:
                raise ConnectionError
            data += piece
        self.requests += 1


def answers_once(vendor: Closer, connection: socket.socket) -> None:
    vendor.read(connection)
    connection.sendall(ANSWER)


def answers_and_reads(vendor: Closer, connection: socket.socket) -> None:
    """The second request is read to its end, and never answered."""
    answers_once(vendor, connection)
    vendor.read(connection)


def answers_and_resets(vendor: Closer, connection: socket.socket) -> None:
    answers_and_reads(vendor, connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def answers_and_turns_away(vendor: Closer, connection: socket.socket) -> None:
    """The second request comes to its kernel, and is not read."""
    answers_once(vendor, connection)
    while not connection.recv(1, socket.MSG_PEEK):
        pass


@pytest.fixture
def blind(monkeypatch) -> None:
    """As if the close were still on its way when the connection is looked at."""
    monkeypatch.setattr(module.KernelView, "is_closing", property(lambda _self: False))


def play(ours, *serve, context: ssl.SSLContext | None = None, waits: bool = True, **options):
    """Two calls, one after the other; answers the second, and how many requests were read."""
    found = []

    async def main() -> None:
        with Closer(*serve, context=context) as vendor:
            async with closing(ours.upstream(vendor.url, **options)) as upstream:
                assert await post(upstream) == (200, b"ok")
                if waits:
                    assert vendor.is_closed.wait(PATIENCE_S)  # the loop stands still meanwhile
                try:
                    found.append(await post(upstream))
                except ConnectionLost as lost:
                    found.append(lost)
                found.append(vendor.requests)

    ours.run(main)
    return found


def test_a_connection_that_was_closed_unseen_is_not_used(ours) -> None:
    assert play(ours, answers_once, answers_once) == [(200, b"ok"), 2]


def test_one_that_is_encrypted_neither(ours, authority) -> None:
    found = play(
        ours,
        answers_once,
        answers_once,
        context=authority.server(),
        ssl_context=authority.trusted(),
    )
    assert found == [(200, b"ok"), 2]


@pytest.mark.usefixtures("blind")
def test_a_request_that_crosses_the_close_goes_out_on_a_fresh_connection(ours) -> None:
    assert play(ours, answers_once, answers_once) == [(200, b"ok"), 2]


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("serve", [answers_and_reads, answers_and_resets, answers_and_turns_away])
def test_a_request_that_the_vendor_may_have_got_is_never_sent_again(ours, serve) -> None:
    lost, requests = play(ours, serve, answers_once, waits=False)
    assert isinstance(lost, ConnectionLost)
    assert lost.request_sent
    assert requests == (1 if serve is answers_and_turns_away else 2)


@pytest.mark.usefixtures("blind")
def test_where_nobody_counts_bytes_a_lost_request_may_have_been_got(ours, monkeypatch) -> None:
    monkeypatch.setattr(module, "_TCP_INFO", None)
    lost, requests = play(ours, answers_once, answers_once)
    assert lost.request_sent
    assert requests == 1


def test_without_keep_alive_no_connection_is_used_twice(ours) -> None:
    assert play(ours, answers_and_reads, answers_once, waits=False, keep_alive_s=0.0) == [
        (200, b"ok"),
        2,
    ]
