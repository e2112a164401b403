"""More is held before a hold runs out, and an answer that nothing carries ends."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from billing.errors import LedgerUnavailable
from billing.rating import Rates, hold_nanos
from gateway.relay import cover as module
from gateway.relay.attempt import Attempt
from gateway.relay.cover import LOOK_EVERY_BYTES, NEVER, STEP_TOKENS_MIN, Cover, Meter
from tests.gateway.relay.driver import EXTENDED, PRICE, REFUSED, Ledger, Stage, accepted, run
from tests.gateway.relay.playbook import SSE, relay
from tests.raw_vendor import chunk, event

LIMIT = {
    "limit_id": 1,
    "scope": "key",
    "period": "day",
    "amount_nanos": 10,
    "posted_nanos": 4,
    "held_nanos": 5,
    "needed_nanos": 2,
    "resets_at": "2026-12-02T00:00:00+00:00",
}


def begun(known: Any) -> Attempt:
    attempt = Attempt(known.routes[0], relay(), b"{}", 0.0, asks_usage=True)
    attempt.answered(200, SSE, 0.0)
    attempt.relay.receive_head(200, SSE)
    return attempt


def say(attempt: Attempt, *pieces: bytes) -> None:
    for piece in pieces:
        attempt.received(piece, 0.0)
        attempt.relay.receive(piece)


def words(count: int) -> list[bytes]:
    """As many tokens as events."""
    return [chunk(" hello")] * count


def looked(produced: int, *answers: Any, **known: Any) -> tuple[Cover, bool, Ledger]:
    """What comes of a look at an answer of so many tokens; its hold covers 100."""
    found: list[Any] = []

    async def work() -> None:
        stage = Stage(extensions=Ledger("extensions", *answers))
        request = accepted(**known)
        cover = Cover(stage, request)
        attempt = begun(request)
        cover.begin(attempt)
        say(attempt, *words(produced))
        found.extend((cover, await cover.carries(attempt.capture.size_bytes), stage.extensions))
        await stage.close()

    run(work)
    return tuple(found)


# --- what was produced ------------------------------------------------------------------------


def metered(*looks: list[bytes], **known: Any) -> list[int]:
    found = []

    async def work() -> None:
        request = accepted(**known)
        attempt = begun(request)
        meter = Meter(attempt, request)
        for pieces in looks:
            say(attempt, *pieces)
            found.append(meter.tokens())

    run(work)
    return found


def test_each_event_is_counted_once_however_it_is_cut() -> None:
    stream = b"".join(words(40))
    assert metered([stream[:1001]], [stream[1001:1002]], [stream[1002:]], []) == [5, 5, 40, 40]


def test_what_was_compressed_between_two_looks_is_counted_once() -> None:
    first, second = words(300), words(50)
    assert metered(first, second, words(1)) == [300, 350, 351]


def test_several_tokens_in_one_event_are_several() -> None:
    assert metered([chunk(" hello" * 25)] * 4) == [100]


def test_thinking_and_arguments_are_output_and_escapes_are_not() -> None:
    call = {"index": 0, "function": {"arguments": ' hello" hello\n hello'}}
    deltas = [{"reasoning_content": " hello hello"}, {"tool_calls": [call]}]
    events = [event({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    (tokens,) = metered(events)
    assert tokens == 7  # five words, a quotation mark and a newline


def test_running_usage_counts_where_it_is_more() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 900, "total_tokens": 910}
    hidden = event({"choices": [{"index": 0, "delta": {"content": " hello"}}], "usage": usage})
    assert metered([hidden]) == [900]


def test_texts_that_cannot_be_read_are_worth_their_events() -> None:
    assert metered([event({"choices": [{"index": 0, "delta": {"custom": [1]}}]})] * 3) == [3]


# --- when more is asked for -------------------------------------------------------------------


def test_nothing_is_asked_before_three_quarters_are_used() -> None:
    cover, carries, ledger = looked(74)
    assert (carries, ledger.items, cover.tokens) == (True, [], 100)


def test_three_quarters_used_more_is_held_up_to_a_new_total() -> None:
    cover, carries, ledger = looked(75, EXTENDED)
    (item,) = ledger.items
    assert carries
    assert cover.tokens == 100 + module.STEP_TOKENS
    assert item["hold_nanos"] == hold_nanos(20, cover.tokens, PRICE)
    assert item["tenant_id"] == 7
    assert cover.look_at_bytes > LOOK_EVERY_BYTES


def test_with_max_tokens_nothing_is_asked_before_the_vendor_passes_them() -> None:
    body = {"max_tokens": 100}
    assert looked(99, body=body)[2].items == []
    cover, carries, ledger = looked(101, EXTENDED, body=body)
    assert (carries, len(ledger.items)) == (True, 1)
    assert cover.output_bound == cover.tokens


def test_several_choices_share_what_is_held() -> None:
    cover, carries, ledger = looked(149, body={"n": 2})
    assert (carries, ledger.items, cover.tokens) == (True, [], 200)


def test_less_is_asked_for_until_it_is_carried() -> None:
    cover, carries, ledger = looked(80, REFUSED, REFUSED, EXTENDED)
    asked = [item["hold_nanos"] for item in ledger.items]
    assert asked == [hold_nanos(20, 100 + step, PRICE) for step in (1024, 256, STEP_TOKENS_MIN)]
    assert (carries, cover.tokens) == (True, 100 + STEP_TOKENS_MIN)


def test_refused_the_answer_goes_on_while_the_hold_lasts() -> None:
    cover, carries, _ = looked(80, REFUSED)
    assert (carries, cover.is_cut_short) == (True, False)


def test_refused_with_the_hold_used_up_it_ends_and_knows_the_limit() -> None:
    cover, carries, _ = looked(100, (0, "refused", 1, LIMIT))
    assert (carries, cover.is_cut_short) == (False, True)
    assert cover.limit.scope == "key"
    assert cover.limit.resets_at == datetime(2026, 12, 2, tzinfo=UTC)


def test_with_max_tokens_a_count_of_ours_does_not_end_what_the_vendor_ends_itself() -> None:
    body = {"max_tokens": 100}
    assert looked(124, REFUSED, body=body)[1] is True
    assert looked(125, REFUSED, body=body)[1] is False


@pytest.mark.parametrize(
    "answer",
    [LedgerUnavailable("away"), psycopg.OperationalError("away"), (0, "closed", None, None)],
)
def test_without_the_ledgers_word_a_running_stream_goes_on(answer) -> None:
    cover, carries, ledger = looked(500, answer)
    assert (carries, cover.is_cut_short, len(ledger.items)) == (True, False, 1)


def test_a_ledger_that_says_nothing_is_not_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.01)

    async def work() -> None:
        silent = asyncio.get_running_loop().create_future()
        stage = Stage(extensions=Ledger("extensions", silent))
        request = accepted()
        cover, attempt = Cover(stage, request), begun(request)
        cover.begin(attempt)
        say(attempt, *words(500))
        assert await cover.carries(attempt.capture.size_bytes)
        await stage.close()

    run(work)


@pytest.mark.parametrize("price", [None, "free"])
def test_what_costs_nothing_is_never_looked_at(price) -> None:
    version = None if price is None else replace(PRICE, rates=Rates(*[0] * 8))

    async def work() -> None:
        request = accepted(price=version)
        cover = Cover(Stage(), request)
        cover.begin(begun(request))
        assert cover.look_at_bytes == NEVER

    run(work)


def test_an_estimate_may_charge_what_the_model_allows_where_the_client_set_no_bound() -> None:
    async def work() -> None:
        request = accepted()
        model = replace(request.model, max_output_tokens=900)
        assert Cover(Stage(), replace(request, model=model)).output_bound == 900
        bounded = accepted(body={"max_tokens": 100})
        assert Cover(Stage(), replace(bounded, model=model)).output_bound == 100

    run(work)
