"""Group c: what a call costs, who pays it, and what is held meanwhile."""

import contextlib
import http.client
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from billing.limits import set_limit, standing
from billing.models import Account, Charge, Exchange, LimitPeriod, Price
from billing.money import text_from_nanos
from gateway.models import Model, Route, Vendor
from tests.api.conftest import Caller
from tests.cases.client import Got, open_call
from tests.cases.runner import (
    NOTHING,
    Ask,
    Case,
    Gets,
    Played,
    Stage,
    assert_within,
    check_payment,
    estimated,
    vendors,
)
from tests.cases.wire import (
    DONE,
    EVENTS,
    JSON,
    ROLE,
    STOP,
    Answer,
    completion,
    counts,
    event,
    stream,
    text,
    usage,
    whole,
)
from tests.stack import until

STREAM = Ask(fields={"stream": True})
WORDS = [event(text("word "))] * 10
UNIT = 10**9


def words_then(*rest: Any) -> Answer:
    """Twenty events, the last ten of them after the client had the time to leave."""
    pieces = [event(ROLE), *WORDS, *WORDS, *(event(value) for value in rest), DONE]
    return Answer(pieces=pieces, label=EVENTS, between_s=0.03)


def broken(status: str, body: Any) -> Answer:
    return whole(body, status=status)


def asks_words(count: int) -> Ask:
    return Ask(fields={"messages": [{"role": "user", "content": "word " * count}]})


def attempts_of(played: Played) -> None:
    first, second = played.exchange.attempts
    assert first["usage"]["prompt_tokens"] == 900
    assert (first["status"], second["status"]) == (500, 200)


def holds_once(played: Played) -> None:
    from billing.models import Transfer

    entries = Transfer.objects.filter(link=played.exchange.id).order_by("id")
    assert [entry.code for entry in entries] == ["hold", "charge"]


def names_its_own_model(played: Played) -> None:
    assert played.got.json()["model"] == played.case.model


PLAYED = [
    Case(
        id="C09",
        rule="a prompt without max_tokens is held for too",
        asks=asks_words(40_000),
        balance="0.01",
        gets=Gets(status=402, error="estimate_exceeds_balance"),
        pays=NOTHING,
        calls=0,
    ),
    Case(
        id="C10",
        rule="every choice is held for, by max_completion_tokens",
        asks=Ask(fields={"n": 8, "max_completion_tokens": 1_000}),
        balance="0.008",
        gets=Gets(status=402, error="estimate_exceeds_balance"),
        pays=NOTHING,
        calls=0,
    ),
    Case(
        id="C10b",
        rule="one choice of the same holds for what was asked, not for what the model can",
        sends=whole(completion(tokens=counts(10, 900))),
        asks=Ask(fields={"max_completion_tokens": 1_000}),
        balance="0.008",
        pays=vendors(10, 900, "0.00361"),
        also=lambda played: assert_within(played.exchange.hold_nanos, (4_000_000, 4_100_000)),
    ),
    Case(
        id="C11b",
        rule="half a price is none: refused, never free",
        prices={"input": "1.00"},
        gets=Gets(status=403, error="model_not_priced"),
        pays=NOTHING,
        calls=0,
    ),
    Case(
        id="C17",
        rule="another route is no other hold",
        vendor=({}, {}),
        sends=(
            broken("500 Broken", {"error": {"message": "boom"}}),
            whole(completion(tokens=counts(30, 10))),
        ),
        calls=2,
        pays=vendors(30, 10, "0.00007"),
        also=holds_once,
    ),
    Case(
        id="C19",
        rule="an answer that cannot be read is not asked for again",
        vendor=({}, {}),
        sends=whole(b'{"id":"chatcmpl-v1","choices":[{"index":0,"message":{"content":"Hi"'),
        gets=Gets(status=502, error="upstream_failed_mid_response"),
        pays=NOTHING,
    ),
    Case(
        id="C20",
        rule="after the first byte there is no other vendor",
        vendor=({}, {}),
        sends=stream(ROLE, text("Hel"), text("lo"), done=False, end="reset"),
        asks=STREAM,
        gets=Gets(error="upstream_failed_mid_response", text="Hello"),
        pays=estimated((1, 8), (3, 40), outcome="partial"),
    ),
    Case(
        id="C22",
        rule="a stream that the vendor refuses costs nothing, and names no key",
        sends=broken(
            "401 Unauthorized",
            {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}},
        ),
        asks=STREAM,
        gets=Gets(status=502, error="upstream_credential_rejected", lacks=("Incorrect API key",)),
        pays=NOTHING,
    ),
    Case(
        id="C24",
        rule="a page instead of an answer is a failure, and is not shown",
        sends=whole(b"<html><body>maintenance</body></html>", label="text/html"),
        gets=Gets(status=502, error="upstream_failed_mid_response", lacks=("<html>",)),
        pays=NOTHING,
    ),
    Case(
        id="C45",
        rule="free is an explicit zero: served without money, and written down",
        prices={"input": "0", "output": "0"},
        balance="0",
        pays=vendors(10, 5, "0"),
    ),
    Case(
        id="C46",
        rule="what a failed attempt used is ours to pay, and is kept",
        vendor=({}, {}),
        sends=(
            broken("500 Broken", {"error": {"message": "no"}, "usage": counts(900, 0)}),
            whole(completion(tokens=counts(900, 20))),
        ),
        calls=2,
        pays=vendors(900, 20, "0.00098"),
        also=attempts_of,
    ),
    Case(
        id="C47",
        rule="errors under 200 are a failure",
        sends=whole({"errors": [{"title": "Not Found"}]}),
        gets=Gets(status=502, error="upstream_unavailable"),
        pays=NOTHING,
    ),
    Case(
        id="C48",
        rule="the price is that of the model that was asked for, whatever the vendor says it used",
        sends=whole(completion(tokens=counts(10, 5), model="vendor-expensive")),
        gets=Gets(lacks=("vendor-expensive",)),
        pays=vendors(10, 5, "0.00003"),
        also=names_its_own_model,
    ),
]

C01 = Case(
    id="C01",
    rule="a client that leaves after content pays for it",
    sends=words_then(STOP, usage(12, 200)),
    asks=STREAM,
    pays=estimated((10, 45), (3, 40), outcome="client_gone"),
)
C03 = Case(
    id="C03",
    rule="without usage a client that left gets back what it did not receive, and no more",
    sends=words_then(),
    asks=STREAM,
    pays=estimated((10, 60), (3, 40), outcome="client_gone"),
)
SLOW = Case(
    id="C06",
    rule="a balance for three lets three through",
    sends=whole(completion(tokens=counts(10, 100)), before_head_s=0.5),
    asks=Ask(fields={"max_tokens": 100}),
    pays=vendors(10, 100, "0.00041"),
)
C07 = Case(
    id="C07",
    rule="a key's budget is held, not read",
    sends=whole(completion(tokens=counts(10, 95)), before_head_s=0.5),
    asks=Ask(fields={"max_tokens": 97}),
    pays=vendors(10, 95, "0.00039"),
)
C13 = Case(
    id="C13",
    rule="the smallest cost is kept, and a thousand of them add up",
    sends=whole(completion("", tokens=counts(3, 0))),
    prices={"input": "0.02", "output": "0"},
    pays=vendors(3, 0, "0.00000006"),
)
C15 = Case(
    id="C15",
    rule="a price that changes in flight is the next request's",
    sends=whole(completion(tokens=counts(100, 50)), before_head_s=0.5),
    pays=vendors(100, 50, "0.0003"),
)
C16 = Case(
    id="C16",
    rule="what failed leaves every counter as it was",
    sends=broken("500 Broken", {"error": {"message": "boom"}}),
    gets=Gets(status=502, error="upstream_unavailable"),
    pays=NOTHING,
)
C26 = Case(
    id="C26",
    rule="a vendor may use an id twice",
    sends=(
        whole(completion(tokens=counts(10, 5), id="chatcmpl-213")),
        whole(completion(tokens=counts(20, 8), id="chatcmpl-213")),
    ),
    pays=vendors(10, 5, "0.00003"),
)
C27 = Case(
    id="C27",
    rule="a request id of the client's is no key",
    asks=Ask(headers=(*Ask().headers, ("X-Request-Id", "abc"), ("X-Client-Request-Id", "abc"))),
    pays=vendors(10, 5, "0.00003"),
)
C42 = Case(
    id="C42",
    rule="three tenths are three tenths",
    sends=whole(completion("", tokens=counts(100_000, 0))),
    asks=Ask(fields={"max_tokens": 1}),
    pays=vendors(100_000, 0, "0.1"),
)
C43 = Case(
    id="C43",
    rule="charges at once are each taken",
    sends=whole(completion("", tokens=counts(10_000, 0))),
    asks=Ask(fields={"max_tokens": 1}),
    pays=vendors(10_000, 0, "0.01"),
)
C44 = Case(
    id="C44",
    rule="the tier of a long prompt is held and charged",
    sends=whole(completion(tokens=counts(210_000, 10))),
    asks=asks_words(210_000),
    pays=vendors(210_000, 10, "0.42004"),
)
ACTED = [C01, C03, C07, C13, C15, C16, C26, C27, C42, C43, C44, SLOW]
CASES = [*PLAYED, *ACTED]


@pytest.mark.parametrize("case", PLAYED, ids=lambda case: case.id)
def test_money(stage: Stage, case: Case) -> None:
    stage.play(case)


# --- clients that leave -----------------------------------------------------------------------


@pytest.mark.parametrize("case", [C01, C03], ids=lambda case: case.id)
def test_a_client_that_leaves_pays_for_what_came(stage: Stage, case: Case) -> None:
    caller = stage.caller(case)
    headers = [("Authorization", f"Bearer {caller.secret}"), ("Content-Type", JSON)]
    with open_call(caller.base_url, case.asks.body(case.model), headers) as wire:
        answer = http.client.HTTPResponse(wire)
        answer.begin()
        found = {name.lower(): value for name, value in answer.getheaders()}
        body = b""
        while body.count(b"word ") < 10:
            body += answer.read1()
        answer.close()
    check_payment(caller, Got(200, found, [], 0.0), case.pays, case.balance)


# --- many at once -----------------------------------------------------------------------------


def call_together(stage: Stage, case: Case, caller: Caller, count: int) -> list[Got]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: stage.call(case, caller), range(count)))


def hold_text(stage: Stage, case: Case, count: float) -> str:
    """So many times the hold of one call."""
    one = stage.call(case, stage.caller(case)).headers["x-farthing-hold"]
    return text_from_nanos(int(count * int(one.replace(".", ""))))


def charges_of(caller: Caller, count: int) -> list[int]:
    """Of all its calls, once that many are settled and nothing is held."""
    charges = Charge.objects.filter(tenant_id=caller.tenant.pk, usage_source="vendor")
    until(lambda: charges.count() == count and caller.balance()[1] == 0)
    return list(charges.values_list("charge_nanos", flat=True))


def test_a_balance_for_three_lets_three_through(stage: Stage) -> None:
    balance = hold_text(stage, SLOW, 3.5)
    caller = stage.caller(replace(SLOW, balance=balance))
    before = len(stage.vendor.heard(SLOW.model))

    answers = call_together(stage, SLOW, caller, 20)

    statuses = sorted(got.status for got in answers)
    assert statuses == [200] * 3 + [429] * 17
    assert len(stage.vendor.heard(SLOW.model)) == before + 3
    assert charges_of(caller, 3) == [410_000] * 3
    posted, held = caller.balance()
    assert (text_from_nanos(posted + 3 * 410_000), held) == (balance, 0)


def test_a_keys_budget_for_two_lets_two_through(stage: Stage) -> None:
    caller = stage.caller(C07)
    budget = int(hold_text(stage, C07, 2.5).replace(".", ""))
    set_limit(caller.tenant, LimitPeriod.TOTAL, budget, key=caller.key, actor="tests")
    before = len(stage.vendor.heard(C07.model))

    answers = call_together(stage, C07, caller, 15)

    assert sorted(got.status for got in answers) == [200] * 2 + [429] * 13
    assert len(stage.vendor.heard(C07.model)) == before + 2
    assert charges_of(caller, 2) == [390_000] * 2
    (limit,) = standing(caller.tenant, key_id=caller.key.pk)
    assert (limit.posted_nanos, limit.held_nanos) == (780_000, 0)


def test_charges_at_once_are_each_taken(stage: Stage) -> None:
    caller = stage.caller(C43)
    answers = call_together(stage, C43, caller, 50)
    assert {got.status for got in answers} == {200}
    assert charges_of(caller, 50) == [10_000_000] * 50
    assert caller.balance() == (10 * UNIT - UNIT // 2, 0)


# --- one after the other ----------------------------------------------------------------------


def test_the_smallest_costs_add_up(stage: Stage) -> None:
    caller, count = stage.caller(C13), 40
    for _ in range(count):
        assert stage.call(C13, caller).status == 200
    assert charges_of(caller, count) == [60] * count
    assert caller.balance() == (10 * UNIT - 60 * count, 0)


def test_what_failed_leaves_every_counter_as_it_was(stage: Stage) -> None:
    caller = stage.caller(C16)
    set_limit(caller.tenant, LimitPeriod.DAY, UNIT, actor="tests")
    set_limit(caller.tenant, LimitPeriod.MONTH, UNIT, key=caller.key, actor="tests")
    for _ in range(5):
        got = stage.call(C16, caller)
        assert got.status == 502
        check_payment(caller, got, NOTHING, C16.balance)
    limits = standing(caller.tenant, key_id=caller.key.pk)
    assert [(limit.posted_nanos, limit.held_nanos) for limit in limits] == [(0, 0)] * 2
    failed = Exchange.objects.filter(tenant_id=caller.tenant.pk, charge__outcome="failed")
    assert failed.count() == 5


def test_three_tenths_are_three_tenths(stage: Stage) -> None:
    caller = stage.caller(C42)
    set_limit(caller.tenant, LimitPeriod.TOTAL, 3 * UNIT // 10, key=caller.key, actor="tests")
    for number in range(3):
        assert stage.call(C42, caller).status == 200
        charges_of(caller, number + 1)
    refused = stage.call(C42, caller)
    assert (refused.status, refused.json()["error"]["code"]) == (402, "key_limit_reached")
    shown = caller.get("/v1/key").json()
    assert (shown["spent"], shown["spend_limits"][0]["remaining"]) == ("0.300000000", "0.000000000")


@pytest.mark.parametrize(
    ("case", "charges"), [(C26, [30_000, 52_000]), (C27, [30_000, 30_000])], ids=["C26", "C27"]
)
def test_each_call_is_a_row_and_a_charge(stage: Stage, case: Case, charges: list[int]) -> None:
    caller = stage.caller(case)
    answers = [stage.call(case, caller) for _ in range(2)]
    assert len({got.headers["x-request-id"] for got in answers}) == 2
    assert sorted(charges_of(caller, 2)) == charges


# --- prices -----------------------------------------------------------------------------------


@contextlib.contextmanager
def in_flight(stage: Stage, case: Case, caller: Caller) -> Iterator[Future[Got]]:
    """A call that has reached its vendor and has no answer yet."""
    before = len(stage.vendor.heard(case.model))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(stage.call, case, caller)
        until(lambda: len(stage.vendor.heard(case.model)) > before)
        yield future


def new_price(case: Case, **changes: Any) -> Price:
    return Price.objects.create(
        model=case.model, currency="USD", effective_from=timezone.now(), **changes
    )


def charged_by(stage: Stage, case: Case, caller: Caller, price: Price) -> Charge:
    """The charge of the first call that the new price rates."""

    def settled() -> Charge | None:
        exchange = caller.settled(stage.call(case, caller).headers["x-request-id"])
        return exchange.charge if exchange.price_id == price.pk else None

    return until(settled)


def test_a_price_that_changes_in_flight_is_the_next_requests(stage: Stage) -> None:
    caller = stage.caller(C15)
    with in_flight(stage, C15, caller) as future:
        price = new_price(C15, input_nanos=10 * UNIT, output_nanos=40 * UNIT)
    exchange = check_payment(caller, future.result(), C15.pays, C15.balance)
    assert exchange.price_id != price.pk
    shown = caller.get(f"/v1/requests/{future.result().headers['x-request-id']}").json()
    assert [line["unit_price"] for line in shown["price_lines"]] == ["1.000000000", "4.000000000"]
    assert charged_by(stage, C15, caller, price).charge_nanos == 3_000_000


def test_the_tier_of_a_long_prompt_is_held_and_charged(stage: Stage) -> None:
    caller = stage.caller(C44)
    tier = {"above_prompt_tokens": 200_000, "input_nanos": 2 * UNIT}
    price = new_price(C44, input_nanos=UNIT, output_nanos=4 * UNIT, tiers=[tier])
    charge = charged_by(stage, C44, caller, price)
    assert charge.charge_nanos == 420_040_000
    assert Exchange.objects.get(id=charge.exchange_id).hold_nanos >= 400_000_000
    assert charge.shortfall_nanos == 0


def test_a_model_without_a_price_is_refused_before_any_vendor(stage: Stage) -> None:
    """C11."""
    case = Case(id="C11", rule="", pays=NOTHING)
    model = Model.objects.create(name=case.model)
    stage.vendor.put_on(case.model, case.answers)
    vendor = Vendor.objects.create(name=case.model, base_url=stage.vendor.url(case.model))
    Route.objects.create(model=model, vendor=vendor, vendor_model="vendor-m")
    caller = stage.caller(case)
    got = until(lambda: next((g for g in [stage.call(case, caller)] if g.status != 404), None))
    assert (got.status, got.json()["error"]["code"]) == (403, "model_not_priced")
    assert stage.vendor.heard(case.model) == []
    assert Account.objects.get(tenant=caller.tenant, kind="wallet").posted_nanos == 10 * UNIT
