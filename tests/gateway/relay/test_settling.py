"""One rule for each way that an answer can end, and no end without a settlement."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import psycopg
import pytest

from billing.errors import LedgerUnavailable, QueueFull
from billing.ledger import Hold
from gateway.relay import settling
from gateway.relay.attempt import Attempt
from gateway.relay.cover import Cover
from gateway.relay.failures import Fault
from gateway.relay.settling import Settling, insist, release_unanswered
from gateway.runtime.spool import Spool
from tests.gateway.relay.driver import Ledger, Stage, accepted, run
from tests.gateway.relay.playbook import JSON, SSE, relay

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
COUNT = b"data: " + orjson.dumps({"choices": [], "usage": USAGE}) + b"\n\n"
DONE = b"data: [DONE]\n\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> list[str]:
    """No pauses, and Celery told by a list."""
    told: list[str] = []
    monkeypatch.setattr(settling, "RETRY_PAUSES_S", (0.0,))
    monkeypatch.setattr(settling, "_send_task", told.append)
    return told


async def ended(
    stage: Stage, *pieces: bytes, fault: Fault | None = None, gone: bool = False, **changes: Any
) -> Settling:
    """An exchange whose one attempt got these bytes, settled."""
    known = accepted(**changes)
    attempt = Attempt(known.routes[0], relay(), b"{}", known.arrival.started_s, asks_usage=True)
    attempt.answered(200, SSE, known.arrival.started_s)
    attempt.relay.receive_head(200, SSE)
    for piece in pieces:
        attempt.received(piece, known.arrival.started_s)
        attempt.relay.receive(piece)
    if fault is not None:
        attempt.relay.receive_fault(fault)
    elif not gone:
        attempt.relay.receive_end()
    work = Settling(stage, known, Cover(stage, known))
    work.begin(attempt)
    work.set_end(status_code=200, error_code=None, is_client_gone=gone)
    await work.settle()
    return work


def settle(*pieces: bytes, **changes: Any) -> tuple[list[dict], list[dict]]:
    """Settlements and estimates that this end leads to."""
    stage = None

    async def work() -> None:
        nonlocal stage
        stage = Stage()
        await ended(stage, *pieces, **changes)
        await stage.close()

    run(work)
    return stage.settlements.items, stage.estimates.items


def test_a_whole_answer_with_usage_is_charged_by_it() -> None:
    (item,), estimates = settle(TEXT, STOP, COUNT, DONE)
    assert (item["cost_nanos"], item["outcome"], item["usage_source"]) == (
        30_000,
        "answered",
        "vendor",
    )
    assert (item["input_tokens"], item["output_tokens"]) == (10, 5)
    assert item["finish_reason"] == "stop"
    assert estimates == []


def test_without_usage_a_worker_counts_and_is_told(quick) -> None:
    settlements, (item,) = settle(TEXT, STOP, DONE)
    assert settlements == []
    assert (item["is_ready"], item["job"]["outcome"]) == (True, "answered")
    assert (item["job"]["output_bound"], item["job"]["choices"]) == (100, 1)
    assert quick == [str(item["id"])]


def test_a_stream_that_broke_is_charged_by_what_came() -> None:
    settlements, (item,) = settle(TEXT, fault=Fault.CONNECTION_LOST)
    assert settlements == []
    assert item["job"]["outcome"] == "partial"


def test_a_stream_that_broke_behind_its_usage_is_charged_by_that() -> None:
    (item,), estimates = settle(TEXT, COUNT, fault=Fault.CONNECTION_LOST)
    assert (item["cost_nanos"], item["outcome"], estimates) == (30_000, "partial", [])


def test_a_failure_before_any_answer_is_free() -> None:
    (item,), estimates = settle(fault=Fault.CONNECT_FAILED)
    assert (item["cost_nanos"], item["outcome"], item["usage_source"]) == (0, "failed", "none")
    assert item["message"]["user_status"] == 503
    assert estimates == []


def test_a_client_that_left_with_nothing_pays_nothing() -> None:
    (item,), estimates = settle(gone=True)
    assert (item["cost_nanos"], item["outcome"], estimates) == (0, "client_gone", [])


def test_a_client_that_left_in_the_middle_pays_for_what_came() -> None:
    settlements, (item,) = settle(TEXT, gone=True)
    assert (settlements, item["job"]["outcome"]) == ([], "client_gone")


def test_a_client_that_left_behind_the_end_was_answered() -> None:
    (item,), _ = settle(TEXT, STOP, COUNT, DONE, gone=True)
    assert item["outcome"] == "answered"


def test_without_a_price_usage_is_kept_and_costs_nothing() -> None:
    (item,), _ = settle(TEXT, STOP, COUNT, DONE, price=None)
    assert (item["cost_nanos"], item["input_tokens"]) == (0, 10)


def test_a_slow_ledger_delays_the_end_by_a_moment_only(monkeypatch) -> None:
    monkeypatch.setattr(settling, "SETTLE_WAIT_S", 0.01)

    async def work() -> None:
        answer = asyncio.get_running_loop().create_future()
        stage = Stage(settlements=Ledger("settlements", answer))
        await ended(stage, TEXT, STOP, COUNT, DONE)
        assert not answer.done()
        answer.set_result((0, "settled"))
        await stage.close()
        assert len(stage.settlements.items) == 1  # the same answer was waited for, not another

    run(work)


def test_a_settlement_that_is_not_written_yet_is_on_disk_when_the_answer_ends(
    monkeypatch, tmp_path
) -> None:
    """The client may read to the end and the gateway be killed at that very moment."""
    monkeypatch.setattr(settling, "SETTLE_WAIT_S", 0.01)

    async def work() -> None:
        answer = asyncio.get_running_loop().create_future()
        spool = Spool(tmp_path)
        stage = Stage(settlements=Ledger("settlements", answer), spool=spool)
        await ended(stage, TEXT, STOP, COUNT, DONE)
        (kept,) = spool.found("settlements")
        assert kept["cost_nanos"] == 30_000
        answer.set_result((0, "settled"))
        await stage.close()
        assert list(spool.found("settlements")) == []

    run(work)


@pytest.mark.parametrize(
    "refusal",
    [
        LedgerUnavailable("away"),
        QueueFull("full"),
        psycopg.errors.LockNotAvailable("lock"),
        psycopg.errors.QueryCanceled("too long"),
        psycopg.errors.DeadlockDetected("deadlock"),
    ],
)
def test_a_settlement_is_sent_until_it_is_written(refusal: Exception) -> None:
    async def work() -> None:
        stage = Stage(settlements=Ledger("settlements", refusal, refusal, refusal, (0, "settled")))
        await ended(stage, TEXT, STOP, COUNT, DONE)
        await stage.close()
        items = stage.settlements.items
        assert len(items) == 4
        assert all(item == items[0] for item in items)

    run(work)


def test_what_the_database_refuses_to_store_is_left_out_and_the_money_is_not() -> None:
    async def work() -> None:
        refusal = psycopg.errors.UntranslatableCharacter("NUL")
        stage = Stage(settlements=Ledger("settlements", refusal, (0, "settled")))
        await ended(stage, TEXT, STOP, COUNT, DONE)
        await stage.close()
        first, second = stage.settlements.items
        assert first["vendor_usage"] == USAGE
        assert second["vendor_usage"] is None
        assert second["attempts"] is None
        assert (second["cost_nanos"], second["id"]) == (first["cost_nanos"], first["id"])

    run(work)


def test_an_exchange_of_which_nothing_can_be_read_is_resolved_at_zero() -> None:
    async def work() -> None:
        stage = Stage()
        known = accepted()
        lost = Settling(stage, known, Cover(stage, known))
        lost.set_end(status_code=500, error_code="internal_error", is_client_gone=False)
        await lost.let_go()
        await stage.close()
        (item,) = stage.settlements.items
        assert item["id"] == known.arrival.exchange_id
        assert (item["cost_nanos"], item["outcome"]) == (0, "failed")
        assert (item["status_code"], item["error_code"]) == (500, "internal_error")

    run(work)


def a_hold() -> Hold:
    known = accepted()
    return Hold(
        exchange_id=known.arrival.exchange_id,
        tenant_id=7,
        key_id=1,
        process_id=1,
        price_id=None,
        hold_nanos=1,
        currency="USD",
        model="m",
        created_at=known.arrival.created_at,
        is_stream=False,
        is_test=False,
    )


@pytest.mark.parametrize(
    ("words", "times"), [(["settled"], 1), (["already"], 1), (["unknown", "settled"], 2)]
)
def test_a_hold_that_nobody_answered_for_is_resolved_once_it_cannot_come_any_more(
    words: list[str], times: int, monkeypatch
) -> None:
    monkeypatch.setattr(settling, "STATEMENT_TIMEOUT_MS", 0)

    async def work() -> None:
        stage = Stage(settlements=Ledger("settlements", *[(0, word) for word in words]))
        hold = a_hold()
        await release_unanswered(stage, hold)
        assert len(stage.settlements.items) == times
        item = stage.settlements.items[0]
        assert (item["id"], item["cost_nanos"], item["status_code"]) == (hold.exchange_id, 0, 503)

    run(work)


def test_what_is_insisted_on_answers_the_ledgers_word() -> None:
    async def work() -> None:
        stage = Stage(settlements=Ledger("settlements", (0, "already", None, None)))
        assert await insist(stage, stage.settlements, {"id": "x"}) == "already"

    run(work)


def test_a_check_point_that_fails_is_no_failure_of_the_stream() -> None:
    async def work() -> None:
        stage = Stage(estimates=Ledger("estimates", LedgerUnavailable("away")))
        known = accepted()
        work = Settling(stage, known, Cover(stage, known))
        attempt = Attempt(known.routes[0], relay(), b"{}", 0.0, asks_usage=True)
        attempt.answered(200, JSON, 0.0)
        attempt.received(TEXT, 0.0)
        work.begin(attempt)
        await work.checkpoint()
        (item,) = stage.estimates.items
        assert (item["is_ready"], item["job"]["outcome"]) == (False, "gateway_died")
        assert item["job"]["kept_bytes"] == len(TEXT)

    run(work)


def test_the_cost_is_told_where_usage_is() -> None:
    async def work() -> None:
        stage = Stage()
        done = await ended(stage, TEXT, STOP, COUNT, DONE)
        assert done.cost_headers() == [(b"x-farthing-cost", b"0.000030000")]
        assert done.usage_with_cost() == {**USAGE, "cost": "0.000030000", "cost_currency": "USD"}
        unknown = await ended(stage, TEXT, STOP, DONE)
        assert unknown.cost_headers() == []
        assert unknown.usage_with_cost() is None
        await stage.close()

    run(work)


def test_a_tenant_that_stores_nothing_is_told_to_nobody() -> None:
    async def work() -> None:
        stage = Stage()
        known = accepted()
        silent = replace(known.principal, transcript_policy="nothing")
        done = await ended(stage, TEXT, STOP, COUNT, DONE, principal=silent)
        done.record([])
        assert stage.spoken == []
        (await ended(stage, TEXT, STOP, COUNT, DONE)).record([])
        assert len(stage.spoken) == 1
        await stage.close()

    run(work)
