"""One connection: garbage, deadlines and back-pressure, more strictly than aiohttp."""

import asyncio
import socket
from dataclasses import replace

import pytest

from gateway.upstream import Upstream
from gateway.upstream.errors import ConnectionLost, FirstByteTimeout, TotalTimeout
from gateway.upstream.protocol import READ_HIGH_WATER_BYTES
from tests.gateway.upstream.conftest import PATIENT
from tests.gateway.upstream.play import closing, play, post, read_all
from tests.gateway.upstream.vendor import Vendor, answering, chunked, in_turn, sized

MIB = 1024 * 1024
LARGEST_READ_BYTES = 256 * 1024


@pytest.mark.parametrize("garbage", [b"garbage", b"H", b"\r\n\r\nHTTP/1.1", b"\x16\x03\x01\0"])
@pytest.mark.parametrize("first", [sized(b"first"), chunked(b"first")], ids=["sized", "chunked"])
def test_garbage_in_the_same_read_ends_the_connection_not_the_answer(ours, garbage, first):
    async def script(wire):
        await wire.request()
        await wire.send(first + garbage)
        await wire.closed_by_client()

    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"first")
        assert (upstream.open_connections, upstream.idle_connections) == (0, 0)
        assert await post(upstream) == (200, b"second")
        assert vendor.connections == 2

    play(ours, in_turn(script, answering(sized(b"second"))), test)


@pytest.mark.parametrize("garbage", [sized(b"poison"), b"\r\n", b"x"])
def test_any_byte_on_an_idle_connection_ends_it(ours, garbage):
    may_speak = asyncio.Event()

    async def script(wire):
        await wire.request()
        await wire.send(sized(b"first"))
        await may_speak.wait()
        await wire.send(garbage)
        await wire.closed_by_client()

    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"first")
        assert (upstream.open_connections, upstream.idle_connections) == (1, 1)
        may_speak.set()
        await vendor.closed_by_client.wait()
        assert (upstream.open_connections, upstream.idle_connections) == (0, 0)
        assert await post(upstream) == (200, b"second")

    play(ours, in_turn(script, answering(sized(b"second"))), test)


def flood(total_bytes: int, stalled: asyncio.Event):
    """Send this much; `stalled` is set when nothing moves for a while."""

    async def script(wire):
        await wire.request()
        wire.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total_bytes)
        for _ in range(total_bytes // MIB):
            wire.writer.write(b"x" * MIB)
            try:
                async with asyncio.timeout(0.3):
                    await wire.writer.drain()
            except TimeoutError:
                stalled.set()
                await wire.writer.drain()
        await wire.closed_by_client()

    return script


def test_a_lagging_reader_holds_a_bounded_amount_and_is_not_called_idle(ours):
    stalled = asyncio.Event()

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        await stalled.wait()  # longer than idle_s, and none of it is the vendor's fault
        held = await response.read()
        assert READ_HIGH_WATER_BYTES < len(held) <= READ_HIGH_WATER_BYTES + LARGEST_READ_BYTES
        assert len(await read_all(response)) == 32 * MIB - len(held)
        assert upstream.idle_connections == 1

    play(ours, flood(32 * MIB, stalled), test, timeouts=replace(PATIENT, idle_s=0.15))


def test_a_vendor_that_was_held_back_gets_its_idle_time_afresh(ours):
    """All that is on its way has arrived; the vendor needs a moment to send again."""
    go_on = asyncio.Event()
    held = b"x" * (READ_HIGH_WATER_BYTES + 1)

    async def script(wire):
        await wire.request()
        await wire.send(sized(held + b"rest")[:-4])
        await go_on.wait()
        await wire.send(b"rest")
        await wire.closed_by_client()

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        await asyncio.sleep(0.3)  # the reader's own slowness, beyond idle_s
        assert await response.read() == held
        await asyncio.sleep(0.02)  # a timer left in the past would fire here
        go_on.set()
        assert await read_all(response) == b"rest"

    play(ours, script, test, timeouts=replace(PATIENT, idle_s=0.2))


def test_the_total_bound_holds_for_a_lagging_reader_too(ours):
    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        await vendor.closed_by_client.wait()
        assert await response.read()  # what had arrived is not lost
        with pytest.raises(TotalTimeout):
            await read_all(response)
        assert upstream.open_connections == 0

    async def script(wire):
        try:
            await flood(32 * MIB, asyncio.Event())(wire)
        finally:
            wire.vendor.closed_by_client.set()

    play(ours, script, test, timeouts=replace(PATIENT, total_s=0.6))


def test_a_long_upload_is_not_a_late_first_byte(ours):
    """The first-byte bound starts again with each piece that the vendor takes."""

    async def script(wire):
        await wire.head()
        taken = 0
        while taken < 64 * MIB:
            taken += len(await wire.reader.read(2 * MIB))
            await asyncio.sleep(0.02)  # the pace of the vendor: slow together, never silent
        await wire.send(sized(b"ok"))

    async def test(upstream, vendor):
        assert await post(upstream, b"x" * (64 * MIB)) == (200, b"ok")

    play(ours, script, test, timeouts=replace(PATIENT, first_byte_s=0.4))


def test_a_vendor_that_stops_reading_is_a_first_byte_timeout(ours):
    async def script(wire):
        await wire.head()
        await wire.vendor.closed_by_client.wait()

    async def test(upstream, vendor):
        with pytest.raises(FirstByteTimeout) as late:
            await post(upstream, b"x" * (64 * MIB))
        assert (late.value.request_sent, late.value.response_started) == (True, False)
        vendor.closed_by_client.set()

    play(ours, script, test, timeouts=replace(PATIENT, first_byte_s=0.05))


def test_a_reset_in_the_upload_is_a_loss_with_the_request_sent(ours, caplog):
    async def script(wire):
        await wire.head()
        wire.reset()

    async def test(upstream, vendor):
        with pytest.raises(ConnectionLost) as lost:
            await post(upstream, b"x" * (64 * MIB))
        assert (lost.value.request_sent, lost.value.response_started) == (True, False)
        assert (vendor.connections, upstream.open_connections) == (1, 0)

    play(ours, script, test)
    assert caplog.messages == []


def can_listen(host: str) -> bool:
    try:
        with socket.create_server(
            (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("host", [host for host in ("127.0.0.1", "::1") if can_listen(host)])
def test_a_vendor_may_be_an_address(ours, host):
    literal = f"[{host}]" if ":" in host else host

    async def main():
        async with (
            Vendor(answering(sized(b"ok")), host=host) as vendor,
            closing(ours.upstream(f"http://{literal}:{vendor.port}/v1")) as upstream,
        ):
            assert await post(upstream, path="/x") == (200, b"ok")
            assert vendor.heads[0].startswith(
                b"POST /v1/x HTTP/1.1\r\nhost: %b:%d\r\n" % (literal.encode(), vendor.port)
            )

    ours.run(main)


class CountingLoop(asyncio.SelectorEventLoop):
    timers = 0

    def call_at(self, *args, **kwargs):
        self.timers += 1
        return super().call_at(*args, **kwargs)


def test_neither_an_event_nor_a_call_costs_a_timer():
    async def script(wire):
        while True:
            await wire.request()
            answer = chunked(*[b"event"] * 100)
            await wire.send(*[answer[at : at + 40] for at in range(0, len(answer), 40)])

    async def main():
        loop = asyncio.get_running_loop()
        async with (
            Vendor(script) as vendor,
            closing(Upstream(vendor.url, timeouts=PATIENT, max_connections=1)) as upstream,
        ):
            assert await post(upstream) == (200, b"event" * 100)
            before = loop.timers
            for _ in range(10):
                assert await post(upstream) == (200, b"event" * 100)
            assert loop.timers == before

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(main())
