"""From route to route: when the next one is tried, and what breakers learn of each call."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.relay import settling
from gateway.relay.exchange import Exchange
from gateway.runtime.breakers import Breakers
from gateway.runtime.snapshot import BreakerSettings, RouteTo
from tests.gateway.relay.driver import Client, Stage, a_vendor, accepted, run
from tests.gateway.upstream.vendor import Script, Vendor, Wire, answering, once, sized
from tests.raw_vendor import ENDING, chunk

ONE_IS_ENOUGH = BreakerSettings(failures=1, percent=50, window_s=30.0, pause_s=10.0)
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
GOOD = once(EVENTS, chunk("Hello"), ENDING)
NOBODY = "http://127.0.0.1:1/v1"


def broken(status: bytes, *headers: bytes) -> Script:
    return answering(sized(b'{"error":{"message":"no"}}', *headers, status=status))


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Scene:
    """One gateway, and a vendor for each route of the model, in their order."""

    def __init__(self, stage: Stage, vendors: list[Vendor], clock: Clock) -> None:
        self.stage = stage
        self.vendors = vendors
        self.clock = clock
        self.routes = [
            RouteTo(
                a_vendor(f"{vendor.url}/v1", id=number, breaker=ONE_IS_ENOUGH),
                "vendor-m",
                None,
                number,
                1,
            )
            for number, vendor in enumerate(vendors, 1)
        ]

    async def ask(self, *routes: RouteTo, client: Client | None = None, **known: Any) -> Client:
        client = client or Client()
        request = accepted(routes=list(routes or self.routes), **known)
        await Exchange(self.stage, request, []).answer(client.send, client.receive)
        return client

    @property
    def calls(self) -> list[int]:
        return [len(vendor.heads) for vendor in self.vendors]


def play(act: Callable[[Scene], Awaitable[None]], *scripts: Script) -> Stage:
    clock = Clock()
    stage = Stage(breakers=Breakers(clock))

    async def work() -> None:
        async with AsyncExitStack() as stack:
            vendors = [await stack.enter_async_context(Vendor(script)) for script in scripts]
            try:
                await act(Scene(stage, vendors, clock))
            finally:
                await stage.close()

    run(work)
    return stage


@pytest.fixture(autouse=True)
def patient(settings, monkeypatch) -> None:
    settings.HEARTBEAT_S = 15.0
    monkeypatch.setattr(settling, "_send_task", lambda _id: None)


@pytest.mark.parametrize(
    "status", [b"500 Broken", b"503 Busy", b"429 Slow", b"401 Who", b"404 What"]
)
def test_an_error_that_cost_nothing_goes_to_the_next_route_and_is_one_charge(status) -> None:
    async def act(scene: Scene) -> None:
        client = await scene.ask()
        assert b"Hello" in client.body
        assert scene.calls == [1, 1]

    stage = play(act, broken(status), GOOD)
    (item,) = stage.settlements.items
    assert [attempt.get("status") for attempt in item["attempts"]] == [int(status[:3]), 200]
    assert item["cost_nanos"] == 30_000


def test_a_vendor_that_is_not_there_is_passed_over_and_then_not_asked() -> None:
    async def act(scene: Scene) -> None:
        dead = RouteTo(a_vendor(NOBODY, id=9, breaker=ONE_IS_ENOUGH), "vendor-m", None, 0, 1)
        for _ in range(2):
            client = await scene.ask(dead, *scene.routes)
            assert b"Hello" in client.body

    stage = play(act, GOOD)
    assert [len(item["attempts"]) for item in stage.settlements.items] == [2, 1]


@pytest.mark.parametrize("status", [b"400 Bad", b"422 Odd"])
def test_what_the_client_did_wrong_goes_nowhere_else_and_opens_nothing(status) -> None:
    async def act(scene: Scene) -> None:
        for _ in range(3):
            client = await scene.ask()
            assert client.status == int(status[:3])
        assert scene.calls == [3, 0]
        assert not scene.stage.breakers.is_troubled

    play(act, broken(status), GOOD)


def test_a_call_that_may_have_cost_is_not_made_again() -> None:
    """One vendor call, one charge: what broke off before its head may have been worked on."""

    async def act(scene: Scene) -> None:
        client = await scene.ask()
        assert client.status == 502
        assert client.headers[b"x-should-retry"] == b"false"
        assert scene.calls == [1, 0]
        client = await scene.ask()  # by now its route is closed
        assert b"Hello" in client.body
        assert scene.calls == [1, 1]

    play(act, once(), GOOD)


def test_a_route_whose_vendor_asks_for_time_is_left_alone() -> None:
    async def act(scene: Scene) -> None:
        limited = scene.routes[0]
        for _ in range(2):
            assert b"Hello" in (await scene.ask()).body
        assert scene.calls == [1, 2]
        client = await scene.ask(limited)
        assert (client.status, client.headers[b"retry-after"]) == (429, b"30")
        assert b"upstream_rate_limited" in client.body
        assert scene.calls == [1, 2]
        scene.clock.now_s += 30.0
        await scene.ask(limited)
        assert scene.calls == [2, 2]

    play(act, broken(b"429 Slow", b"Retry-After: 30"), GOOD)


def test_where_no_route_takes_a_call_nobody_is_called_and_nothing_charged() -> None:
    async def act(scene: Scene) -> None:
        await scene.ask(stream=False)
        client = await scene.ask(stream=False)
        assert (client.status, client.headers[b"retry-after"]) == (503, b"10")
        assert client.headers[b"x-should-retry"] == b"true"
        assert b"upstream_unavailable" in client.body
        assert scene.calls == [1]

    stage = play(act, broken(b"500 Broken"))
    second = stage.settlements.items[1]
    assert (second["cost_nanos"], second["status_code"]) == (0, 503)
    assert second["error_code"] == "upstream_unavailable"
    assert stage.given_back == ["slot", "slot"]
    assert len(stage.spoken) == 2


def test_after_the_pause_one_call_probes_and_the_others_wait_for_it() -> None:
    go = asyncio.Event()

    async def fails_once(wire: Wire) -> None:
        await wire.request()
        if wire.vendor.connections == 1:
            await wire.send(sized(b"{}", b"Connection: close", status=b"500 Broken"))
            return
        await wire.send(EVENTS)
        await go.wait()
        await wire.send(chunk("Hello"), ENDING)

    async def act(scene: Scene) -> None:
        await scene.ask()
        scene.clock.now_s += 10.0
        probe = asyncio.create_task(scene.ask())
        await scene.vendors[0].has_read(2)
        assert [(await scene.ask()).status for _ in range(3)] == [503] * 3
        assert scene.calls == [2]
        go.set()
        assert b"Hello" in (await probe).body
        assert b"Hello" in (await scene.ask()).body

    play(act, fails_once)


def test_a_probe_that_speaks_lets_the_others_in_while_it_goes_on() -> None:
    go = asyncio.Event()

    async def fails_once(wire: Wire) -> None:
        await wire.request()
        if wire.vendor.connections == 1:
            return
        await wire.send(EVENTS, chunk("Hel"))
        if wire.vendor.connections == 2:
            await go.wait()
        await wire.send(ENDING)

    async def act(scene: Scene) -> None:
        await scene.ask()
        scene.clock.now_s += 10.0
        client = Client()
        probe = asyncio.create_task(scene.ask(client=client))
        await client.has(b"Hel")
        assert b"[DONE]" in (await scene.ask()).body
        go.set()
        await probe

    play(act, fails_once)


def test_a_client_that_leaves_says_nothing_of_a_vendor() -> None:
    async def silent(wire: Wire) -> None:
        await wire.request()
        await wire.closed_by_client()

    async def act(scene: Scene) -> None:
        client = Client()
        task = asyncio.create_task(scene.ask(client=client))
        await scene.vendors[0].has_read(1)
        client.leaves.set()
        await task
        assert not scene.stage.breakers.is_troubled

    play(act, silent)


def test_a_stream_that_breaks_counts_against_its_route() -> None:
    async def act(scene: Scene) -> None:
        client = await scene.ask()
        assert b"upstream_failed_mid_response" in client.body
        assert scene.stage.breakers.is_troubled

    async def breaks(wire: Wire) -> None:
        await wire.request()
        await wire.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n",
            chunk("Hel"),
        )

    play(act, breaks)


def test_the_order_of_routes_ends_where_a_call_may_have_cost() -> None:
    async def act(scene: Scene) -> None:
        client = await scene.ask()
        assert client.status == 502
        assert scene.calls == [1, 1, 0]

    stage = play(act, broken(b"500 Broken"), once(), GOOD)
    (item,) = stage.settlements.items
    assert len(item["attempts"]) == 2


def test_a_vendor_that_refuses_stream_options_is_one_call_to_its_breaker() -> None:
    refusal = b'{"error":{"message":"unknown field stream_options"}}'

    async def act(scene: Scene) -> None:
        assert b"Hello" in (await scene.ask()).body
        assert scene.calls == [2]
        assert not scene.stage.breakers.is_troubled

    async def picky(wire: Wire) -> None:
        if b"stream_options" in await wire.request():
            await wire.send(sized(refusal, b"Connection: close", status=b"400 Bad"))
            return
        await wire.send(EVENTS, chunk("Hello"), ENDING)

    play(act, picky)
