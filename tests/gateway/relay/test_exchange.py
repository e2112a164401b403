"""The driver: tasks, time and a client that comes and goes, with a real vendor behind it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from billing.messages import CUT_SHORT
from gateway.relay import exchange as module
from gateway.relay import settling
from gateway.relay.answer import AnswerRelay
from gateway.relay.cover import LOOK_EVERY_BYTES
from gateway.relay.exchange import COMMENT, Exchange
from gateway.upstream.protocol import READ_MOST_BYTES
from tests.gateway.relay.driver import REFUSED, Client, Ledger, Stage, a_vendor, accepted, run
from tests.gateway.upstream.vendor import Script, Vendor, Wire, sized
from tests.raw_vendor import DONE, ENDING, WHOLE, chunk

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
COST_NANOS = 30_000

Play = Callable[[Exchange, Client, Stage, Vendor], Awaitable[None]]


@pytest.fixture(autouse=True)
def patient(settings, monkeypatch) -> None:
    settings.HEARTBEAT_S = 15.0
    monkeypatch.setattr(settling, "_send_task", lambda _id: None)


def play(
    script: Script, act: Play, *, drains: bool = False, stage: Stage | None = None, **known: Any
) -> Stage:
    """Run `act` beside an exchange whose vendor follows the script."""
    made: list[Stage] = []

    async def work() -> None:
        async with Vendor(script) as vendor, staged(stage) as used:
            made.append(used)
            access = a_vendor(f"{vendor.url}/v1", drains_when_client_is_gone=drains)
            request = accepted(access, **known)
            client = Client()

            async def answer() -> None:
                await Exchange(used, request, [(b"x-request-id", b"req")]).answer(
                    client.send, client.receive
                )

            task = asyncio.create_task(answer())
            await act(task, client, used, vendor)
            if not task.cancelled():
                await task

    run(work)
    return made[0]


@asynccontextmanager
async def staged(stage: Stage | None):
    stage = stage or Stage()
    try:
        yield stage
    finally:
        await stage.close()


async def watch(task, client: Client, stage: Stage, vendor: Vendor) -> None:
    await task


def streaming(*pieces: bytes) -> Script:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD, *pieces)

    return script


def test_a_stream_is_settled_before_its_last_byte() -> None:
    order: list[str] = []

    class Slow(Ledger):
        def submit(self, item):
            order.append("settled")
            return super().submit(item)

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await client.has(b"[DONE]")
        order.append("done")

    stage = play(
        streaming(chunk("Hello"), ENDING), act, stage=Stage(settlements=Slow("settlements"))
    )
    assert order == ["settled", "done"]
    (item,) = stage.settlements.items
    assert (item["cost_nanos"], item["outcome"]) == (COST_NANOS, "answered")
    assert stage.given_back == ["slot"]
    assert len(stage.spoken) == 1


def test_one_body_has_its_length_and_its_cost() -> None:
    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await task
        assert client.status == 200
        assert int(client.headers[b"content-length"]) == len(client.body)
        assert client.headers[b"x-farthing-cost"] == b"0.000030000"
        assert client.headers[b"cache-control"] == b"no-store"

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(sized(WHOLE, b"Content-Type: application/json"))

    play(script, act, stream=False)


def test_a_client_that_leaves_before_the_vendor_speaks_ends_the_call_and_pays_nothing() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.closed_by_client()

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await vendor.has_read(1)
        client.leaves.set()
        await task
        await vendor.closed_by_client.wait()

    stage = play(script, act)
    (item,) = stage.settlements.items
    assert (item["cost_nanos"], item["outcome"], item["status_code"]) == (0, "client_gone", 499)
    assert stage.given_back == ["slot"]


def test_a_client_that_leaves_in_mid_stream_ends_the_call_and_is_counted() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD, chunk("Hel"))
        await wire.closed_by_client()

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await client.has(b"Hel")
        client.leaves.set()
        await vendor.closed_by_client.wait()
        await task

    stage = play(script, act)
    (item,) = stage.estimates.items
    assert (item["is_ready"], item["job"]["outcome"]) == (True, "client_gone")
    assert stage.settlements.items == []


def test_a_vendor_that_bills_anyway_is_read_to_its_end() -> None:
    go = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD, chunk("Hel"))
        await go.wait()
        await wire.send(chunk("lo"), ENDING)

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await client.has(b"Hel")
        client.leaves.set()
        await client.is_missed.wait()
        await asyncio.sleep(0)
        go.set()
        await task
        assert b"lo" not in client.body.replace(b"Hel", b"")

    stage = play(script, act, drains=True)
    (item,) = stage.settlements.items
    assert (item["cost_nanos"], item["output_tokens"]) == (COST_NANOS, 5)


def test_a_drained_vendor_is_not_read_for_ever(monkeypatch) -> None:
    monkeypatch.setattr(module, "DRAIN_S", 0.0)

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        for _ in range(1_000):
            await wire.send(chunk("lo "))
            await wire.pause(0.001)

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await client.has(b"lo")
        client.leaves.set()
        await task

    stage = play(script, act, drains=True)
    (item,) = stage.estimates.items
    assert item["job"]["outcome"] == "client_gone"


def test_a_client_that_takes_nothing_has_left(settings, monkeypatch) -> None:
    settings.HEARTBEAT_S = 0.02
    monkeypatch.setattr(module, "CLIENT_STALL_S", 0.05)

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD, chunk("Hel"))
        await wire.closed_by_client()

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        client.takes.clear()
        await vendor.closed_by_client.wait()
        client.takes.set()  # its connection is closed, which ends every wait for it
        await task

    stage = play(script, act)
    (item,) = stage.estimates.items
    assert item["job"]["outcome"] == "client_gone"
    assert item["status_code"] == 499


def test_comments_fill_silence_and_never_a_busy_stream(settings) -> None:
    settings.HEARTBEAT_S = 0.05

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.pause(0.18)
        await wire.send(HEAD)
        for _ in range(20):
            await wire.send(chunk("x"))
            await wire.pause(0.01)
        await wire.send(ENDING)

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await task
        quiet, _, busy = client.body.partition(b"data:")
        assert quiet.count(COMMENT) in {2, 3}
        assert busy.count(COMMENT) <= 1  # a busy machine may pause where the script does not
        assert client.body.endswith(DONE)

    play(script, act)


def test_a_vendors_comments_end_no_silence_of_the_client(settings) -> None:
    settings.HEARTBEAT_S = 0.05

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        for _ in range(20):
            await wire.send(b": keepalive\n\n")
            await wire.pause(0.01)
        await wire.send(chunk("Hello"), ENDING)

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await task
        assert client.body.startswith(COMMENT)
        assert b"keepalive" not in client.body

    play(script, act)


def test_no_comment_comes_behind_the_end_or_into_an_error(settings) -> None:
    """The beat comes in the very moment in which the exchange ends."""
    settings.HEARTBEAT_S = 0.0

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(sized(b'{"error":{"message":"no"}}', status=b"500 Broken"))

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await task
        assert client.is_ended
        assert client.body.rstrip(b"\n").endswith(b"}")

    for _ in range(5):
        play(script, act)


def test_a_server_that_stops_settles_what_it_cuts() -> None:
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD, chunk("Hel"))
        await wire.closed_by_client()

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await client.has(b"Hel")
        task.cancel()
        await asyncio.wait({task})
        assert b"upstream_failed_mid_response" in client.body
        assert b"[DONE]" not in client.body

    stage = play(script, act)
    (item,) = stage.estimates.items
    assert item["job"]["outcome"] == "partial"
    assert stage.given_back == ["slot"]


def test_a_settlement_is_not_disturbed_by_a_second_cancellation(monkeypatch) -> None:
    monkeypatch.setattr(settling, "SETTLE_WAIT_S", 5.0)

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await client.has(b"Hel")
        task.cancel()
        await stage.estimates.asked.wait()
        task.cancel()
        await asyncio.wait({task})

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD, chunk("Hel"))
        await wire.closed_by_client()

    stage = play(script, act)
    assert len(stage.estimates.items) == 1
    assert len(stage.spoken) == 1


def test_a_client_that_leaves_while_a_failure_is_settled_changes_nothing() -> None:
    async def work() -> None:
        answer = asyncio.get_running_loop().create_future()
        async with staged(Stage(settlements=Ledger("settlements", answer))) as stage:
            client = Client()
            exchange = Exchange(stage, accepted(), [])  # nobody listens at its vendor's address
            exchange._task = task = asyncio.create_task(
                exchange.answer(client.send, client.receive)
            )
            await stage.settlements.asked.wait()
            client.leaves.set()
            await client.is_missed.wait()
            for _ in range(5):
                await asyncio.sleep(0)
            answer.set_result((0, "settled"))
            await task
            (item,) = stage.settlements.items
            assert (item["status_code"], item["error_code"]) == (503, "upstream_unavailable")

    run(work)


def test_a_fault_of_ours_is_500_and_settled(monkeypatch) -> None:
    def broken(self, data):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(AnswerRelay, "receive", broken)

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await task
        assert client.status == 500
        assert b"internal_error" in client.body
        assert b"a fault of ours" not in client.body
        assert client.headers[b"x-should-retry"] == b"false"

    stage = play(streaming(chunk("Hello"), ENDING), act)
    (item,) = stage.settlements.items
    assert (item["cost_nanos"], item["error_code"]) == (0, "internal_error")
    assert stage.given_back == ["slot"]


def test_an_answer_that_cannot_even_be_read_is_let_go(monkeypatch) -> None:
    def broken(self, data):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(AnswerRelay, "receive", broken)
    monkeypatch.setattr(settling.Settling, "_plan", broken)

    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        monkeypatch.setattr(settling.Settling, "_plan", lambda _self: 1 / 0)
        await task
        assert client.status == 500

    stage = play(streaming(chunk("Hello"), ENDING), act)
    (item,) = stage.settlements.items
    assert (item["cost_nanos"], item["outcome"]) == (0, "failed")


def test_a_long_stream_is_check_pointed(monkeypatch) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_S", 0.0)

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(HEAD)
        for word in ("one ", "two ", "three "):
            await wire.send(chunk(word))
            await wire.pause(0.01)
        await wire.send(ENDING)

    stage = play(script, watch)
    points = stage.estimates.items
    assert points
    assert {item["is_ready"] for item in points} == {False}
    sizes = [item["job"]["size_bytes"] for item in points]
    assert sizes == sorted(sizes)
    assert len(stage.settlements.items) == 1


# --- longer than what is held -----------------------------------------------------------------

WORDS = [chunk(" hello")] * 20


async def endless(wire: Wire) -> None:
    await wire.request()
    await wire.send(HEAD)
    sending = asyncio.create_task(say_for_ever(wire))
    await wire.closed_by_client()
    sending.cancel()


async def say_for_ever(wire: Wire) -> None:
    while True:
        await wire.send(*WORDS)


def test_a_stream_that_nothing_carries_ends_well_formed_and_its_vendor_is_left() -> None:
    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await task
        await vendor.closed_by_client.wait()
        assert client.status == 200
        assert client.body.endswith(b'"finish_reason":"length"}]}\n\n' + DONE)
        assert b'"error"' not in client.body

    stage = play(endless, act, stage=Stage(extensions=Ledger("extensions", REFUSED)))
    (item,) = stage.estimates.items
    assert (item["is_ready"], item["job"]["outcome"], item["finish_reason"]) == (
        True,
        "answered",
        "length",
    )
    assert item["job"]["is_cut_short"] is True
    assert item["message"]["user_message"] == CUT_SHORT
    assert item["message"]["user_status"] == 200
    assert stage.settlements.items == []
    assert stage.given_back == ["slot"]


def test_what_is_read_beyond_the_hold_is_bounded() -> None:
    stage = play(endless, watch, stage=Stage(extensions=Ledger("extensions", REFUSED)))
    (item,) = stage.estimates.items
    held_bytes = 100 * len(chunk(" hello"))
    assert item["job"]["size_bytes"] < held_bytes + LOOK_EVERY_BYTES + READ_MOST_BYTES


def test_a_stream_whose_hold_is_extended_goes_on_to_its_end() -> None:
    stage = play(streaming(*WORDS * 30, ENDING), watch)
    (item,) = stage.settlements.items
    assert (item["outcome"], item["message"]) == ("answered", None)
    assert len(stage.extensions.items) == 1


def test_a_short_answer_asks_for_nothing() -> None:
    stage = play(streaming(*WORDS, ENDING), watch)
    assert stage.extensions.items == []


def test_a_folded_stream_that_nothing_carries_is_one_body_with_its_reason() -> None:
    async def act(task, client: Client, stage: Stage, vendor: Vendor) -> None:
        await task
        (choice,) = orjson.loads(client.body)["choices"]
        assert choice["finish_reason"] == "length"
        assert choice["message"]["content"].startswith(" hello hello")

    stage = play(endless, act, stage=Stage(extensions=Ledger("extensions", REFUSED)), stream=False)
    assert stage.estimates.items[0]["job"]["is_cut_short"] is True


def test_one_body_is_over_when_it_is_seen() -> None:
    body = WHOLE.replace(b'"Hello"', b'"%b"' % (b" hello" * 10_000))

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(sized(body, b"Content-Type: application/json"))

    stage = play(script, watch, stage=Stage(extensions=Ledger("extensions", REFUSED)), stream=False)
    (item,) = stage.settlements.items
    assert (item["outcome"], item["cost_nanos"]) == ("answered", COST_NANOS)
    assert stage.extensions.items == []
