"""What any upstream client must do: the same suite for ours, on both loops, and for aiohttp."""

import asyncio
import socket
import time
from dataclasses import replace

import pytest

from gateway.upstream.errors import (
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    InvalidRequest,
    ProtocolError,
    TotalTimeout,
)
from tests.gateway.upstream.conftest import PATIENT
from tests.gateway.upstream.play import closing, play, post, read_all
from tests.gateway.upstream.vendor import Vendor, answering, chunked, in_turn, once, sized

SHORT_S = 0.05
MIB = 1024 * 1024


# The answer.


def test_status_headers_and_body_arrive_as_sent(subject):
    answer = sized(b"hello", b"X-Twice: a", b"x-twice: b", b"Empty:", status=b"418 I'm a teapot")

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        assert response.status == 418
        assert response.headers == [
            (b"x-twice", b"a"),
            (b"x-twice", b"b"),
            (b"empty", b""),
            (b"content-length", b"5"),
        ]
        assert await read_all(response) == b"hello"
        assert await response.read() == b""

    play(subject, answering(answer), test)


def test_a_chunked_body_may_be_cut_anywhere(subject):
    answer = chunked(b"data: 1\n\n", "data: zażółć\n\n".encode(), b"x")
    pieces = [answer[at : at + 1] for at in range(len(answer))]

    async def script(wire):
        await wire.request()
        await wire.send(*pieces)
        await wire.closed_by_client()

    async def test(upstream, vendor):
        assert await post(upstream) == (200, "data: 1\n\ndata: zażółć\n\nx".encode())

    play(subject, script, test)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_body_without_length_ends_with_the_connection(subject, version):
    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"all of it")

    head = b"HTTP/%b 200 OK\r\nContent-Type: text/plain\r\n\r\n" % version
    play(subject, once(head, b"all ", b"of it"), test)


def test_informational_answers_are_skipped(subject):
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        assert (response.status, response.headers) == (200, [(b"content-length", b"2")])
        assert await read_all(response) == b"ok"

    play(subject, once(early + sized(b"ok")), test)


def test_an_answer_without_a_body_ends_at_once(subject):
    async def test(upstream, vendor):
        assert await post(upstream) == (204, b"")
        assert await post(upstream) == (200, b"next")
        assert vendor.connections == 1

    play(subject, answering(b"HTTP/1.1 204 No Content\r\n\r\n", sized(b"next")), test)


def test_no_redirect_is_followed_and_no_cookie_kept(subject):
    moved = sized(b"", b"Location: /elsewhere", b"Set-Cookie: a=b", status=b"307 Moved")

    async def test(upstream, vendor):
        assert await post(upstream) == (307, b"")
        assert await post(upstream) == (307, b"")
        assert len(vendor.heads) == 2
        assert b"cookie" not in vendor.heads[1].lower()

    play(subject, answering(moved), test)


# Connections.


def test_a_connection_is_used_again(subject):
    async def test(upstream, vendor):
        for _ in range(5):
            assert await post(upstream) == (200, b"ok")
        assert vendor.connections == 1

    play(subject, answering(sized(b"ok"), chunked(b"o", b"k")), test)


@pytest.mark.parametrize(
    "answer",
    [
        sized(b"ok", b"Connection: close"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
def test_a_connection_that_the_vendor_ends_is_not_used_again(subject, answer):
    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"ok")
        assert await post(upstream) == (200, b"ok")
        assert vendor.connections == 2

    play(subject, answering(answer), test)


def test_a_second_answer_that_nobody_asked_for_ends_its_connection(subject):
    async def script(wire):
        await wire.request()
        await wire.send(sized(b"first") + sized(b"poison"))
        await wire.closed_by_client()

    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"first")
        assert await post(upstream) == (200, b"second")
        assert vendor.connections == 2

    play(subject, in_turn(script, answering(sized(b"second"))), test)


def test_a_connection_closed_while_idle_is_not_handed_out(subject):
    closed = asyncio.Event()

    async def script(wire):
        await wire.request()
        await wire.send(sized(b"first"))
        wire.writer.write_eof()
        await wire.closed_by_client()
        closed.set()

    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"first")
        await closed.wait()
        assert await post(upstream) == (200, b"second")

    play(subject, in_turn(script, answering(sized(b"second"))), test)


def test_a_call_waits_for_one_of_a_bounded_number_of_connections(subject):
    may_answer = asyncio.Event()

    async def script(wire):
        while True:
            await wire.request()
            await may_answer.wait()
            await wire.send(sized(b"ok"))

    async def test(upstream, vendor):
        calls = [asyncio.create_task(post(upstream)) for _ in range(6)]
        await vendor.has_read(2)
        may_answer.set()
        assert await asyncio.gather(*calls) == [(200, b"ok")] * 6
        assert vendor.connections == 2

    play(subject, script, test, max_connections=2)


# Ends that are not the end.


def test_a_close_before_the_head_is_a_loss_and_nothing_is_sent_again(subject):
    async def test(upstream, vendor):
        with pytest.raises(ConnectionLost) as lost:
            await post(upstream)
        assert (lost.value.request_sent, lost.value.response_started) == (True, False)
        assert (vendor.connections, len(vendor.heads)) == (1, 1)

    play(subject, once(), test)


def test_a_close_on_a_used_connection_is_a_loss_and_nothing_is_sent_again(subject):
    async def script(wire):
        await wire.request()
        await wire.send(sized(b"first"))
        await wire.request()

    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"first")
        with pytest.raises(ConnectionLost) as lost:
            await post(upstream)
        assert (lost.value.request_sent, lost.value.response_started) == (True, False)
        assert (vendor.connections, len(vendor.heads)) == (1, 2)

    play(subject, script, test)


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1."]
)
def test_half_a_head_is_a_loss(subject, head):
    async def test(upstream, vendor):
        with pytest.raises(ConnectionLost):
            await post(upstream)

    play(subject, once(head), test)


@pytest.mark.parametrize(
    ("answer", "received"),
    [
        (sized(b"123456789")[:-4], b"12345"),
        (chunked(b"12345")[:-5], b"12345"),  # no last chunk
        (chunked(b"12345", b"6789")[:-9], b"1234567"),
        (chunked(b"12345")[:-2], b"12345"),  # no end of the trailers
    ],
    ids=["content-length", "last chunk", "chunk", "trailers"],
)
def test_a_truncated_body_is_delivered_and_then_a_loss(subject, answer, received):
    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        body = b""
        while len(body) < len(received):
            body += await response.read()
        with pytest.raises(ConnectionLost) as lost:
            await response.read()
        assert body == received
        assert (lost.value.request_sent, lost.value.response_started) == (True, True)

    play(subject, once(answer), test)


def test_a_reset_in_the_body_is_a_loss(subject):
    go_on = asyncio.Event()

    async def script(wire):
        await wire.request()
        await wire.send(sized(b"12345")[:-3])
        await go_on.wait()
        wire.reset()

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        assert await response.read() == b"12"
        go_on.set()
        with pytest.raises(ConnectionLost):
            await response.read()

    play(subject, script, test)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nNo colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000 + b"\r\n\r\n",
    ],
    ids=["ssh", "status", "header", "length", "size"],
)
def test_what_is_not_http_is_refused(subject, answer):
    async def script(wire):
        await wire.request()
        await wire.send(answer)
        await wire.closed_by_client()

    async def test(upstream, vendor):
        with pytest.raises(ProtocolError):
            await post(upstream)
        await vendor.closed_by_client.wait()

    play(subject, script, test)


def test_a_refused_connection_has_sent_nothing(subject):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        async with closing(subject.upstream(f"http://127.0.0.1:{port}")) as upstream:
            with pytest.raises(ConnectFailed) as failed:
                await post(upstream)
            assert (failed.value.request_sent, failed.value.response_started) == (False, False)

    subject.run(main)


@pytest.mark.parametrize("value", [b"a\r\nx-injected: b", b"a\nb", b"a\rb", b"a\0b"])
def test_a_header_that_would_break_the_head_is_refused(subject, value):
    async def test(upstream, vendor):
        with pytest.raises(InvalidRequest):
            await upstream.open("/v1/x", [(b"x-name", value)], b"{}")
        assert vendor.heads == []

    play(subject, answering(sized(b"ok")), test)


# Time.


def test_a_handshake_that_never_ends_is_a_connect_timeout(subject):
    async def script(wire):
        await wire.closed_by_client()

    async def main():
        timeouts = replace(PATIENT, connect_s=SHORT_S)
        async with (
            Vendor(script) as vendor,
            closing(
                subject.upstream(f"https://localhost:{vendor.port}", timeouts=timeouts)
            ) as upstream,
        ):
            with pytest.raises(ConnectTimeout) as late:
                await post(upstream)
            assert late.value.request_sent is False
            await vendor.closed_by_client.wait()

    subject.run(main)


async def silent(wire) -> None:
    await wire.request()
    await wire.closed_by_client()


def test_silence_before_the_head_is_a_first_byte_timeout(subject):
    async def test(upstream, vendor):
        with pytest.raises(FirstByteTimeout) as late:
            await post(upstream)
        assert (late.value.request_sent, late.value.response_started) == (True, False)
        await vendor.closed_by_client.wait()

    play(subject, silent, test, timeouts=replace(PATIENT, first_byte_s=SHORT_S))


def test_silence_between_head_and_body_is_a_first_byte_timeout(subject):
    async def script(wire):
        await wire.request()
        await wire.send(sized(b"12345")[:-5])
        await wire.closed_by_client()

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        with pytest.raises(FirstByteTimeout) as late:
            await response.read()
        assert (late.value.request_sent, late.value.response_started) == (True, True)
        await vendor.closed_by_client.wait()

    play(subject, script, test, timeouts=replace(PATIENT, first_byte_s=0.5))


def test_silence_in_the_body_is_an_idle_timeout(subject):
    async def script(wire):
        await wire.request()
        await wire.send(sized(b"12345")[:-3])
        await wire.closed_by_client()

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        assert await response.read() == b"12"
        began = time.monotonic()
        with pytest.raises(IdleTimeout):
            await response.read()
        assert time.monotonic() - began < PATIENT.first_byte_s / 2
        await vendor.closed_by_client.wait()

    play(subject, script, test, timeouts=replace(PATIENT, idle_s=SHORT_S))


def test_a_steady_stream_outlives_the_idle_bound(subject):
    """Twenty events, each within the bound, together beyond it."""

    async def script(wire):
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(20):
            await wire.send(b"1\r\nx\r\n")
            await wire.pause(0.03)
        await wire.send(b"0\r\n\r\n")

    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"x" * 20)

    play(subject, script, test, timeouts=replace(PATIENT, idle_s=0.4, first_byte_s=0.4))


def test_a_stream_that_never_ends_is_a_total_timeout(subject):
    async def script(wire):
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not wire.reader.at_eof():
            await wire.send(b"1\r\nx\r\n")
            await wire.pause(0.01)

    async def test(upstream, vendor):
        with pytest.raises(TotalTimeout):
            await post(upstream)

    play(subject, script, test, timeouts=replace(PATIENT, total_s=0.15))


# Leaving.


def test_cancelling_open_closes_the_connection(subject):
    async def test(upstream, vendor):
        call = asyncio.create_task(upstream.open("/v1/x", [], b"{}"))
        await vendor.has_read(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await vendor.closed_by_client.wait()
        assert await post(upstream) == (200, b"ok")  # the only slot is free again

    play(subject, in_turn(silent, answering(sized(b"ok"))), test, max_connections=1)


async def half_answered(wire) -> None:
    await wire.request()
    await wire.send(sized(b"12345")[:-3])
    await wire.closed_by_client()


def test_cancelling_read_closes_the_connection(subject):
    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        assert await response.read() == b"12"
        reading = asyncio.create_task(response.read())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await vendor.closed_by_client.wait()
        assert await post(upstream) == (200, b"ok")

    play(subject, in_turn(half_answered, answering(sized(b"ok"))), test, max_connections=1)


def test_abort_closes_the_connection(subject):
    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        response.abort()
        response.abort()
        await vendor.closed_by_client.wait()
        assert await post(upstream) == (200, b"ok")

    play(subject, in_turn(half_answered, answering(sized(b"ok"))), test, max_connections=1)


# Size.


def test_big_bodies_pass_both_ways(subject):
    big = bytes(range(256)) * 4 * 4096  # 4 MiB

    async def script(wire):
        while True:
            body = await wire.request()
            await wire.send(sized(body[::-1]))

    async def test(upstream, vendor):
        assert await post(upstream, big) == (200, big[::-1])
        assert await post(upstream, b"small") == (200, b"llams")
        assert vendor.connections == 1

    play(subject, script, test)


def test_an_answer_before_the_body_is_written_is_taken(subject):
    """A vendor refuses a large body by its head; the rest of the body is not sent."""

    async def script(wire):
        await wire.head()
        await wire.send(sized(b"too large", status=b"413 Content Too Large"))
        await wire.vendor.closed_by_client.wait()

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"x" * 64 * MIB)
        assert (response.status, await read_all(response)) == (413, b"too large")
        vendor.closed_by_client.set()
        assert await post(upstream) == (200, b"ok")
        assert vendor.connections == 2

    play(subject, in_turn(script, answering(sized(b"ok"))), test)


@pytest.mark.parametrize("is_tls", [False, True], ids=["tcp", "tls"])
def test_a_slow_reader_slows_the_vendor(subject, is_tls, authority):
    total_bytes = 64 * MIB
    piece = b"x" * MIB
    stalled = asyncio.Event()
    sent_bytes = 0

    async def script(wire):
        nonlocal sent_bytes
        await wire.request()
        wire.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total_bytes)
        for _ in range(total_bytes // MIB):
            wire.writer.write(piece)
            try:
                async with asyncio.timeout(0.5):
                    await wire.writer.drain()
            except TimeoutError:
                stalled.set()
                await wire.writer.drain()
            sent_bytes += MIB
        await wire.closed_by_client()

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        await stalled.wait()
        assert sent_bytes < total_bytes // 2  # the rest waits in the vendor, not in our memory
        assert len(await read_all(response)) == total_bytes

    tls = {"server_ssl": authority.server(), "ssl_context": authority.trusted()} if is_tls else {}
    play(subject, script, test, **tls)


# TLS.


def test_tls_verifies_and_names_the_vendor(subject, authority):
    names: list[str | None] = []
    server = authority.server()
    server.sni_callback = lambda _sslobject, name, _context: names.append(name)

    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"ok")
        assert await post(upstream) == (200, b"ok")
        assert (vendor.connections, names) == (1, ["localhost"])

    play(
        subject,
        answering(sized(b"ok")),
        test,
        server_ssl=server,
        ssl_context=authority.trusted(),
    )


@pytest.mark.parametrize("fault", ["unknown authority", "another name"])
def test_tls_refuses_a_vendor_that_is_not_who_it_should_be(subject, authority, fault):
    name = "localhost" if fault == "unknown authority" else "elsewhere.example"

    async def test(upstream, vendor):
        with pytest.raises(ConnectFailed) as failed:
            await post(upstream)
        assert failed.value.request_sent is False
        assert vendor.heads == []

    options = {} if fault == "unknown authority" else {"ssl_context": authority.trusted()}
    play(subject, answering(sized(b"ok")), test, server_ssl=authority.server(name), **options)


def test_tls_carries_streams_cuts_and_big_bodies(subject, authority):
    big = bytes(range(256)) * 4096  # 1 MiB

    async def script(wire):
        body = await wire.request()
        await wire.send(chunked(body, b"tail"))
        await wire.request()
        await wire.send(sized(b"12345")[:-3])

    async def test(upstream, vendor):
        assert await post(upstream, big) == (200, big + b"tail")
        response = await upstream.open("/v1/x", [], b"{}")
        assert await response.read() == b"12"
        with pytest.raises(ConnectionLost):
            await response.read()

    play(
        subject,
        script,
        test,
        server_ssl=authority.server(),
        ssl_context=authority.trusted(),
    )
