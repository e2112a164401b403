"""Group e: clients that leave. The vendor's policy says whether its answer is read to the end."""

import pytest

from billing.money import nanos_from_text
from tests.api.conftest import Caller
from tests.cases.runner import (
    Ask,
    Case,
    check_charge,
    estimated,
    reading_slowly,
    settled_rows,
    vendors,
)
from tests.cases.wire import HELLO, ROLE, STOP, stream, text, usage
from tests.stack import until

STREAM = Ask(fields={"stream": True})
MINUTE = [text("lo ")] * 120

CASES = [
    Case(
        id="E12",
        rule="clients that leave give everything back and pay for what came",
        sends=(
            *[stream(ROLE, *[text("lo ")] * 400, between_s=0.05, done=False)] * 6,
            HELLO,
        ),
        asks=STREAM,
        pays=estimated((1, 200)),
        vendor={"max_connections": 2},
        key={"concurrent_requests": 2},
    ),
    Case(
        id="E27",
        rule="a client that leaves ends the vendor's call, and pays for what came",
        sends=stream(ROLE, *MINUTE, STOP, usage(10, 120), between_s=0.5),
        asks=STREAM,
        pays=estimated((1, 20)),
    ),
    Case(
        id="E27-drain",
        rule="or it is read to its end, where the vendor bills that anyway",
        sends=stream(ROLE, *MINUTE[:10], STOP, usage(10, 120), between_s=0.1),
        asks=STREAM,
        pays=vendors(10, 120, "0.00049"),
        vendor={"client_gone": "drain"},
    ),
]
BY_ID = {case.id: case for case in CASES}


def test_e12_clients_that_leave_give_all_back_and_pay_for_what_came(stage) -> None:
    case = BY_ID["E12"]
    caller = stage.caller(case)
    for _ in range(6):
        until(lambda: read_and_leave(case, caller))
    until(lambda: stage.call(case, caller, Ask()).status == 200, seconds=3.0)
    until(lambda: stage.vendor.open_calls == 0)
    rows = settled_rows(caller, "client_gone", 6)
    assert {row.charge.usage_source for row in rows} == {"estimate"}
    assert all(0 < row.charge.output_tokens < 200 for row in rows)
    until(lambda: caller.balance()[1] == 0)


def read_and_leave(case: Case, caller: Caller) -> bool:
    """False where a slot is not free yet: a client that has left is noticed a moment later."""
    with reading_slowly(case, caller) as wire, wire.makefile("rb") as answer:
        if b" 429 " in answer.readline():
            return False
        return any(b'"lo ' in line for line in answer)


@pytest.mark.parametrize("name", ["E27", "E27-drain"])
def test_e27_nothing_runs_on_for_a_client_that_has_left(stage, name: str) -> None:
    case = BY_ID[name]
    caller = stage.caller(case)
    assert read_and_leave(case, caller)
    (call,) = stage.vendor.heard(case.model)
    until(call.left.is_set, seconds=5.0)
    (row,) = settled_rows(caller, "client_gone" if name == "E27" else "answered", 1)
    check_charge(row.charge, case.pays)
    posted = nanos_from_text(case.balance) - row.charge.charge_nanos
    assert caller.balance() == (posted, 0)
