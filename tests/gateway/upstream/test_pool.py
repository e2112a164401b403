"""Which connection a call gets, in which order, and what happens when there is none."""

import asyncio
import socket
from dataclasses import replace

import pytest

from gateway.upstream import Upstream
from gateway.upstream.errors import ConnectFailed, ConnectionLost, PoolExhausted, TotalTimeout
from tests.gateway.upstream.conftest import PATIENT
from tests.gateway.upstream.play import closing, play, post, read_all
from tests.gateway.upstream.vendor import answering, in_turn, sized

SHORT_S = 0.05


class Gate:
    """A vendor that answers with the request's own body when it is let."""

    def __init__(self) -> None:
        self.permits = asyncio.Semaphore(0)
        self.answered: list[bytes] = []

    async def __call__(self, wire) -> None:
        while True:
            body = await wire.request()
            await self.permits.acquire()
            self.answered.append(body)
            await wire.send(sized(body))

    def let(self, number: int) -> None:
        for _ in range(number):
            self.permits.release()


async def silent(wire) -> None:
    await wire.request()
    await wire.closed_by_client()


def gauges(upstream) -> tuple[int, int]:
    return upstream.open_connections, upstream.idle_connections


def test_waiters_are_served_in_order_and_newcomers_wait_behind(ours):
    gate = Gate()

    async def test(upstream, vendor):
        calls = [asyncio.create_task(post(upstream, b"%d" % number)) for number in range(5)]
        await vendor.has_read(1)
        gate.let(2)
        await vendor.has_read(3)
        calls.append(asyncio.create_task(post(upstream, b"5")))
        gate.let(4)
        assert await asyncio.gather(*calls) == [(200, b"%d" % number) for number in range(6)]
        assert gate.answered == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert (vendor.connections, gauges(upstream)) == (1, (1, 1))

    play(ours, gate, test, max_connections=1)


def test_the_last_connection_used_is_the_next_and_the_others_expire(ours):
    may_answer = asyncio.Event()

    async def script(wire):
        while True:
            await wire.request()
            await may_answer.wait()
            await wire.send(sized(b"ok"))

    async def test(upstream, vendor):
        calls = [asyncio.create_task(post(upstream)) for _ in range(3)]
        await vendor.has_read(3)
        may_answer.set()
        await asyncio.gather(*calls)
        assert gauges(upstream) == (3, 3)
        async with asyncio.timeout(5):
            while upstream.open_connections > 1:
                await post(upstream)
        assert (vendor.connections, gauges(upstream)) == (3, (1, 1))

    play(ours, script, test, keep_alive_s=0.2)


def test_an_idle_connection_is_closed_after_its_time(ours):
    async def script(wire):
        await wire.request()
        await wire.send(sized(b"ok"))
        await wire.closed_by_client()

    async def test(upstream, vendor):
        await post(upstream)
        assert gauges(upstream) == (1, 1)
        await vendor.closed_by_client.wait()
        assert gauges(upstream) == (0, 0)

    play(ours, script, test, keep_alive_s=SHORT_S)


def test_the_wait_for_a_connection_is_bounded(ours):
    async def test(upstream, vendor):
        first = asyncio.create_task(post(upstream))
        await vendor.has_read(1)
        with pytest.raises(PoolExhausted) as full:
            await post(upstream)
        assert (full.value.request_sent, len(vendor.heads)) == (False, 1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await post(upstream) == (200, b"ok")

    script = in_turn(silent, answering(sized(b"ok")))
    play(ours, script, test, max_connections=1, pool_wait_s=SHORT_S)


def test_the_wait_for_a_connection_counts_towards_the_total(ours):
    async def test(upstream, vendor):
        first = asyncio.create_task(upstream.open("/v1/x", [], b"{}"))
        await vendor.has_read(1)
        second = asyncio.create_task(post(upstream))
        with pytest.raises(TotalTimeout) as late:
            await first
        assert late.value.request_sent is True
        with pytest.raises(TotalTimeout):
            await second
        assert gauges(upstream) == (0, 0)

    play(ours, silent, test, max_connections=1, timeouts=replace(PATIENT, total_s=0.4))


def test_a_waiter_that_leaves_is_passed_over(ours):
    gate = Gate()

    async def test(upstream, vendor):
        calls = [asyncio.create_task(post(upstream, b"%d" % number)) for number in range(3)]
        await vendor.has_read(1)
        calls[1].cancel()
        gate.let(2)
        assert await calls[0] == (200, b"0")
        assert await calls[2] == (200, b"2")
        assert (vendor.connections, gauges(upstream)) == (1, (1, 1))

    play(ours, gate, test, max_connections=1)


def test_a_waiter_cancelled_in_the_moment_it_is_served_hands_its_connection_on(ours):
    gate = Gate()

    async def test(upstream, vendor):
        async def first():
            body = await read_all(await upstream.open("/v1/x", [], b"0"))
            # The answer's end has served the second, whose task has not run yet.
            second.cancel()
            return body

        call = asyncio.create_task(first())
        await vendor.has_read(1)
        second = asyncio.create_task(post(upstream, b"1"))
        third = asyncio.create_task(post(upstream, b"2"))
        await asyncio.sleep(0)
        gate.let(2)
        assert await call == b"0"
        assert await third == (200, b"2")
        assert second.cancelled()
        assert gate.answered == [b"0", b"2"]
        assert (vendor.connections, gauges(upstream)) == (1, (1, 1))

    play(ours, gate, test, max_connections=1)


def test_a_lost_connection_gives_its_slot_to_a_waiter(ours):
    may_close = asyncio.Event()

    async def closes(wire):
        await wire.request()
        await may_close.wait()

    async def test(upstream, vendor):
        first = asyncio.create_task(post(upstream))
        await vendor.has_read(1)
        second = asyncio.create_task(post(upstream))
        await asyncio.sleep(0)
        may_close.set()
        with pytest.raises(ConnectionLost):
            await first
        assert await second == (200, b"ok")

    play(ours, in_turn(closes, answering(sized(b"ok"))), test, max_connections=1)


def test_a_waiter_cancelled_in_the_moment_it_gets_a_slot_hands_it_on(ours):
    may_close = asyncio.Event()

    async def closes(wire):
        await wire.request()
        await may_close.wait()

    async def test(upstream, vendor):
        async def first():
            with pytest.raises(ConnectionLost):
                await post(upstream)
            second.cancel()  # it has the slot by now, and its task has not run yet

        call = asyncio.create_task(first())
        await vendor.has_read(1)
        second = asyncio.create_task(post(upstream))
        third = asyncio.create_task(post(upstream))
        await asyncio.sleep(0)
        may_close.set()
        await call
        assert await third == (200, b"ok")
        assert second.cancelled()
        assert (vendor.connections, gauges(upstream)) == (2, (1, 1))

    play(ours, in_turn(closes, answering(sized(b"ok"))), test, max_connections=1)


def test_failed_connects_give_their_slots_back(ours):
    async def main():
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with closing(ours.upstream(url, max_connections=2)) as upstream:
            calls = await asyncio.gather(
                *(post(upstream) for _ in range(7)), return_exceptions=True
            )
            assert [type(call) for call in calls] == [ConnectFailed] * 7
            assert gauges(upstream) == (0, 0)

    ours.run(main)


def test_a_vendor_that_greets_first_is_not_spoken_to(ours):
    """Whether its bytes come before the request or after it, the greeting is not an answer."""

    async def script(wire):
        await wire.send(b"220 mail.example ESMTP\r\n")
        await wire.closed_by_client()

    async def test(upstream, vendor):
        with pytest.raises(Exception, match=r"not HTTP|closed the connection at once"):
            await post(upstream)
        assert gauges(upstream) == (0, 0)

    play(ours, script, test)


def test_close_ends_calls_waiters_and_idle_connections(ours):
    async def test(upstream, vendor):
        assert await post(upstream) == (200, b"ok")
        busy = [asyncio.create_task(post(upstream)) for _ in range(2)]
        await vendor.has_read(3)
        waiting = asyncio.create_task(post(upstream))
        await asyncio.sleep(0)
        await upstream.close()
        for call in busy:
            with pytest.raises(ConnectionLost, match="client is closed") as lost:
                await call
            assert lost.value.request_sent is True
        with pytest.raises(ConnectFailed, match="client is closed") as refused:
            await waiting
        assert refused.value.request_sent is False
        with pytest.raises(ConnectFailed, match="client is closed"):
            await post(upstream)
        assert gauges(upstream) == (0, 0)

    async def script(wire):
        if wire.vendor.connections == 1:
            await wire.request()
            await wire.send(sized(b"ok"))
        await silent(wire)

    play(ours, script, test, max_connections=2)


def test_a_call_cancelled_in_mid_connect_gives_its_slot_back(ours, authority):
    shaking_hands = asyncio.Event()
    context = authority.server()
    context.sni_callback = lambda *_: shaking_hands.set()

    async def test(upstream, vendor):
        call = asyncio.create_task(post(upstream))
        await shaking_hands.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await post(upstream) == (200, b"ok")
        assert gauges(upstream) == (1, 1)

    script = answering(sized(b"ok"))
    tls = {"server_ssl": context, "ssl_context": authority.trusted()}
    play(ours, script, test, max_connections=1, **tls)


def test_the_number_of_waiters_is_bounded(ours, monkeypatch):
    monkeypatch.setattr("gateway.upstream.pool.MAX_WAITERS", 2)

    async def test(upstream, vendor):
        calls = [asyncio.create_task(post(upstream)) for _ in range(3)]
        await vendor.has_read(1)
        with pytest.raises(PoolExhausted, match="too many calls wait"):
            await post(upstream)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert gauges(upstream) == (0, 0)

    play(ours, silent, test, max_connections=1)


def test_a_close_in_mid_connect_leaves_no_connection(ours, authority):
    """The TLS handshake ends after the client was closed."""
    may_shake_hands = asyncio.Event()
    context = authority.server()

    async def test(upstream, vendor):
        call = asyncio.create_task(post(upstream))
        await may_shake_hands.wait()
        await upstream.close()
        with pytest.raises(ConnectFailed, match="the client closed the connection"):
            await call
        assert (vendor.heads, gauges(upstream)) == ([], (0, 0))

    context.sni_callback = lambda *_: may_shake_hands.set()
    play(ours, silent, test, server_ssl=context, ssl_context=authority.trusted())


def test_a_pool_needs_room_for_one():
    with pytest.raises(ValueError, match="room for one"):
        Upstream("http://h", timeouts=PATIENT, max_connections=0)
