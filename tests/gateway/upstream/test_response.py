"""Reading an answer: for one reader, in pieces, to one end."""

import asyncio

import pytest

from gateway.upstream.errors import ConnectionLost, ProtocolError
from tests.gateway.upstream.play import play, post
from tests.gateway.upstream.vendor import answering, chunked, in_turn, once, sized


async def half_answered(wire) -> None:
    await wire.request()
    await wire.send(sized(b"12345")[:-3])
    await wire.closed_by_client()


def test_what_has_arrived_is_read_as_one_piece(ours):
    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        assert await response.read() == b"one two three"
        assert await response.read() == b""
        assert await response.read() == b""

    play(ours, answering(chunked(b"one ", b"two ", b"three")), test)


def test_a_second_reader_is_refused_and_the_first_unharmed(ours):
    go_on = asyncio.Event()

    async def script(wire):
        await wire.request()
        await wire.send(sized(b"12345")[:-5])
        await go_on.wait()
        await wire.send(b"12345")
        await wire.closed_by_client()

    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        first = asyncio.create_task(response.read())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one reader"):
            await response.read()
        go_on.set()
        assert await first == b"12345"

    play(ours, script, test)


def test_an_aborted_answer_drops_what_it_held(ours):
    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        response.abort()
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="aborted by us") as lost:
                await response.read()
            assert (lost.value.request_sent, lost.value.response_started) == (True, True)
        assert (upstream.open_connections, upstream.idle_connections) == (0, 0)

    play(ours, half_answered, test)


def test_an_abort_wakes_the_reader(ours):
    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        assert await response.read() == b"12"
        reading = asyncio.create_task(response.read())
        await asyncio.sleep(0)
        response.abort()
        with pytest.raises(ConnectionLost):
            await reading

    play(ours, half_answered, test)


def test_an_abort_after_the_end_leaves_the_connection_alone(ours):
    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        response.abort()
        assert await response.read() == b"whole"
        assert upstream.idle_connections == 1
        assert await post(upstream) == (200, b"whole")
        assert vendor.connections == 1

    play(ours, answering(sized(b"whole")), test)


def test_a_connection_is_free_before_its_answer_is_read(ours):
    async def test(upstream, vendor):
        first = await upstream.open("/v1/x", [], b"{}")
        second = await upstream.open("/v1/x", [], b"{}")
        assert (await first.read(), await second.read()) == (b"1st", b"2nd")
        assert vendor.connections == 1

    play(ours, answering(sized(b"1st"), sized(b"2nd")), test, max_connections=1)


def test_body_before_a_protocol_fault_is_read_first(ours):
    async def test(upstream, vendor):
        response = await upstream.open("/v1/x", [], b"{}")
        assert await response.read() == b"good"
        with pytest.raises(ProtocolError) as fault:
            await response.read()
        assert (fault.value.request_sent, fault.value.response_started) == (True, True)

    bad = chunked(b"good")[:-5] + b"not a size\r\n"
    play(ours, in_turn(once(bad)), test)
