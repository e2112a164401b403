"""An answer's bytes by the client's version; uvicorn's own parts are played by nobody here."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.supervisor.answering import Cycle


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True


def answered(version: str, *bodies: bytes, headers: Any = ()) -> Transport:
    transport = Transport()
    logger = logging.getLogger("tests")
    cycle = Cycle(
        scope={"type": "http", "method": "POST", "http_version": version},
        transport=transport,
        flow=SimpleNamespace(write_paused=False),
        logger=logger,
        access_logger=logger,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=version != "1.0",
        on_response=lambda: None,
    )

    async def answer() -> None:
        await cycle.send({"type": "http.response.start", "status": 200, "headers": list(headers)})
        for number, body in enumerate(bodies, 1):
            more = number < len(bodies)
            await cycle.send({"type": "http.response.body", "body": body, "more_body": more})

    asyncio.run(answer())
    return transport


def test_a_stream_to_the_older_version_is_sent_as_it_is_and_ends_with_its_connection() -> None:
    transport = answered("1.0", b"data: 1\n\n", b"", b"data: 2\n\n", b"")
    head, _, body = transport.written.partition(b"\r\n\r\n")
    assert head == b"HTTP/1.1 200 OK\r\nconnection: close"
    assert body == b"data: 1\n\ndata: 2\n\n"
    assert transport.is_closed


def test_a_stream_whose_last_piece_says_something_is_whole() -> None:
    assert answered("1.0", b"one ", b"two").written.endswith(b"\r\n\r\none two")


def test_a_stream_to_the_newer_version_is_chunked() -> None:
    transport = answered("1.1", b"data: 1\n\n", b"")
    assert transport.written.endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n\r\n")
    assert not transport.is_closed


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_answer_with_a_length_has_that_length_in_either(version: str) -> None:
    transport = answered(version, b"four", headers=[(b"Content-Length", b"4")])
    assert b"content-length: 4\r\n" in transport.written
    assert b"transfer-encoding" not in transport.written
    assert transport.written.endswith(b"\r\n\r\nfour")
    with pytest.raises(RuntimeError, match="longer than Content-Length"):
        answered(version, b"fours", headers=[(b"content-length", b"4")])
