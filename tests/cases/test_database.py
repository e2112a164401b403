"""Group f: what the database and the processes around it do to the money."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from billing.audit import audit
from billing.limits import set_limit, standing
from billing.models import Charge, Exchange, LimitPeriod, Transfer
from gateway.models import Transcript
from gateway.relay.capture import unpack
from tests.api.conftest import Caller
from tests.cases.runner import (
    NOTHING,
    Ask,
    Case,
    Gets,
    Played,
    Stage,
    assert_within,
    estimated,
    usage_of,
    vendors,
)
from tests.cases.wire import completion, counts, whole
from tests.stack import Stack, until

BILLIONS = 3_000_000_000
MAX_INT4 = 2**31 - 1
SECRET = "sk-abcdefghijklmnop1234"
UNIT = 10**9


def takes_its_time(played: Played) -> None:
    assert played.exchange.status_code == 502
    assert played.exchange.duration_ms >= 300


def is_masked_where_it_is_kept(played: Played) -> None:
    kept = until(Transcript.objects.filter(exchange_id=played.exchange.id).first)
    bodies = [unpack(bytes(kept.client_request)), unpack(bytes(kept.vendor_answer))]
    assert b"my key is" in bodies[0]
    assert b"Your key" in bodies[1]
    assert all(SECRET.encode() not in body for body in bodies)
    assert SECRET not in json.dumps([kept.summary, kept.legs])


PLAYED = [
    Case(
        id="F16",
        rule="a failure is a row: its status, no cost, how long it took",
        sends=whole({"error": {"message": "x"}}, status="500 Broken", before_head_s=0.3),
        gets=Gets(status=502, error="upstream_unavailable"),
        pays=NOTHING,
        also=takes_its_time,
    ),
    Case(
        id="F17",
        rule="what is masked is what is kept, never what is sent",
        sends=whole(completion(f"Your key {SECRET} is noted.", tokens=counts(10, 5))),
        asks=Ask(fields={"messages": [{"role": "user", "content": f"my key is {SECRET}"}]}),
        gets=Gets(has=(SECRET,)),
        sent={"messages.0.content": f"my key is {SECRET}"},
        pays=vendors(10, 5, "0.00003"),
        also=is_masked_where_it_is_kept,
    ),
]
LOCKS = Case(id="F02", rule="settlements never wait for each other in a ring", pays=NOTHING)
NUL = Case(id="F04", rule="a row that is hard to store keeps no other from it", pays=NOTHING)
HUGE = Case(
    id="F11",
    rule="counts and ids have 64 bits",
    sends=whole(completion("", tokens=counts(BILLIONS, 0))),
    prices={"input": "0.001", "output": "0.001"},
    pays=vendors(BILLIONS, 0, "3"),
)
UNCOUNTED = Case(
    id="F22",
    rule="with no worker holds stay, and nothing is lost",
    sends=whole(completion()),
    asks=Ask(fields={"max_tokens": 100}),
    pays=estimated((1, 3)),
)
FAILED = Case(id="F16b", rule="every way to fail is a row", balance="1", pays=NOTHING)
CASES = [*PLAYED, LOCKS, NUL, HUGE, UNCOUNTED, FAILED]


@pytest.mark.parametrize("case", PLAYED, ids=lambda case: case.id)
def test_database(stage: Stage, case: Case) -> None:
    stage.play(case)


def rows_of(caller: Caller, count: int, **fields: Any) -> list[Exchange]:
    found = Exchange.objects.filter(tenant_id=caller.tenant.pk, state="settled", **fields)
    until(lambda: found.count() == count)
    return list(found.select_related("charge").order_by("id"))


def test_settlements_of_two_keys_never_wait_in_a_ring(stage: Stage, world) -> None:
    """Both keys and their tenant have limits, and both are settled in turn and against it."""
    first = stage.caller(LOCKS)
    made = world.key(first.tenant, "second")
    second = Caller(first.base_url, made.secret, first.tenant, made.key)
    set_limit(first.tenant, LimitPeriod.DAY, UNIT, actor="tests")
    for caller in (first, second):
        set_limit(caller.tenant, LimitPeriod.DAY, UNIT, key=caller.key, actor="tests")

    def call(number: int) -> list[int]:
        turns = (first, second) if number % 2 else (second, first)
        return [stage.call(LOCKS, caller).status for _ in range(5) for caller in turns]

    with ThreadPoolExecutor(8) as pool:
        statuses = [status for found in pool.map(call, range(8)) for status in found]
    assert statuses == [200] * 80
    assert sum(row.charge.charge_nanos for row in rows_of(first, 80)) == 80 * 30_000
    limits = standing(first.tenant, key_id=second.key.pk)
    assert sorted(limit.posted_nanos for limit in limits) == [40 * 30_000, 80 * 30_000]
    assert first.balance() == (10 * UNIT - 80 * 30_000, 0)


def test_one_row_with_a_nul_costs_no_other_row(stage: Stage) -> None:
    caller = stage.caller(NUL)
    asked = [Ask(fields={"user": "a\x00b" if number == 3 else "ab"}) for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda asks: stage.call(NUL, caller, asks), asked))
    assert {got.status for got in answers} == {200}
    assert [row.charge.charge_nanos for row in rows_of(caller, 10)] == [30_000] * 10


def test_counts_and_ids_have_64_bits(stage: Stage) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence('billing_transfer', 'id')")
        (sequence,) = cursor.fetchone()
        cursor.execute("SELECT setval(%s, greatest(nextval(%s), %s))", [sequence] * 2 + [MAX_INT4])
    caller = stage.caller(HUGE)
    set_limit(caller.tenant, LimitPeriod.TOTAL, 10 * UNIT, key=caller.key, actor="tests")
    answers = [stage.call(HUGE, caller) for _ in range(2)]
    assert {got.status for got in answers} == {200}
    for row in rows_of(caller, 2):
        assert usage_of(row.charge).input_tokens == BILLIONS
        assert row.charge.charge_nanos == 3 * UNIT
    newest = Transfer.objects.filter(tenant_id=caller.tenant.pk).order_by("-id").first()
    assert newest.id > MAX_INT4
    shown = caller.get(f"/v1/requests/{answers[0].headers['x-request-id']}").json()
    assert shown["usage"]["prompt_tokens"] == BILLIONS
    (limit,) = standing(caller.tenant, key_id=caller.key.pk)
    assert limit.posted_nanos == 6 * UNIT


def test_with_no_worker_holds_stay_and_nothing_is_lost(stage: Stage, stack: Stack) -> None:
    """The worker stands still, as one that is stopped for hours would."""
    (worker,) = (process for process in stack.processes if process.log.stem == "worker")
    caller = stage.caller(UNCOUNTED)
    os.kill(worker.popen.pid, signal.SIGSTOP)
    try:
        for _ in range(8):
            assert stage.call(UNCOUNTED, caller).status == 200
        waiting = Exchange.objects.filter(tenant_id=caller.tenant.pk, state="estimating")
        until(lambda: waiting.count() == 8)
        assert caller.balance() == (10 * UNIT, sum(waiting.values_list("hold_nanos", flat=True)))
    finally:
        os.kill(worker.popen.pid, signal.SIGCONT)
    rows = rows_of(caller, 8)
    for row in rows:
        assert row.charge.usage_source == "estimate"
        assert_within(usage_of(row.charge).completion_tokens, (1, 3))
    charged = Charge.objects.filter(tenant_id=caller.tenant.pk)
    assert charged.count() == 8
    assert caller.balance() == (10 * UNIT - sum(row.charge.charge_nanos for row in rows), 0)


def test_every_way_to_fail_is_a_row(stage: Stage, world) -> None:
    poor = stage.caller(FAILED)
    made = world.key(poor.tenant, "narrow", allowed_models=["another"])
    narrow = Caller(poor.base_url, made.secret, poor.tenant, made.key)
    asked = [
        (narrow, Ask(), 403, "model_not_allowed"),
        (poor, Ask(raw=b"{"), 400, "invalid_json"),
        (poor, Ask(fields={"n": 128, "max_tokens": 10**9}), 402, "estimate_exceeds_balance"),
    ]
    for caller, asks, status, _ in asked:
        assert stage.call(FAILED, caller, asks).status == status
    rows = rows_of(poor, len(asked))
    assert [(row.status_code, row.error_code) for row in rows] == [
        (status, code) for _, _, status, code in asked
    ]
    assert [row.charge.charge_nanos for row in rows] == [0] * 3
    assert poor.balance() == (UNIT, 0)


def test_the_books_are_in_order_after_all_that(stage: Stage) -> None:
    assert audit().differences == ()
