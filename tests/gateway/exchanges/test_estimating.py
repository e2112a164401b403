"""Exchanges that a worker settles: counted once, whoever delivers the task and how often."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from django.db import connection, connections
from django.utils import timezone

from billing.ids import new_exchange_id
from billing.ledger import Facts, Hold, Settlement, payload, settle_now
from billing.messages import ESTIMATED, INTERRUPTED
from billing.models import Account, Charge, EstimateJob, Exchange, GatewayProcess, Message
from billing.usage import Usage
from billing.writer import ESTIMATE
from gateway.exchanges import estimating
from gateway.exchanges.estimating import settle_by_estimate, sweep
from gateway.relay.capture import Capture
from tests.gateway.exchanges.made import FIXED_ANSWER, Maker, a_stream

REQUEST = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "benchmark"}]})
HOLD_NANOS = 2_000_000
COUNTED = (30, 65)  # of REQUEST and FIXED_ANSWER, by the family's vocabulary and template
COST_NANOS = 30 * 1_000 + 65 * 4_000
FAMILY = "qwen2.5"


def frames(body: bytes) -> str:
    capture = Capture()
    capture.add(body)
    return base64.b64encode(capture.frames()).decode()


class Ground:
    """One tenant with one price, and exchanges of it in every state on the way to an estimate."""

    def __init__(self, world) -> None:
        self.tenant = world.tenant(balance="1")
        self.price = world.price(f"estimated-{self.tenant.slug}")
        self.maker = Maker(self.tenant, price=self.price)

    def opened(self, **changes: Any) -> Hold:
        return self.maker.held(HOLD_NANOS, **changes)

    def kept(self, hold: Hold, **changes: Any) -> str:
        """What a gateway sends when an answer has ended without usage; its statement's word."""
        answer = changes.pop("answer", a_stream(FIXED_ANSWER))
        facts = {
            "head": {"status": 200, "headers": [["content-type", "text/event-stream"]]},
            "outcome": "answered",
            "cached_beside": None,
            "output_bound": 1_000,
            "choices": 1,
            "size_bytes": len(answer),
            "kept_bytes": len(answer),
            **changes.pop("facts", {}),
        }
        now = datetime.now(UTC)
        item = {
            "id": hold.exchange_id,
            "tenant_id": hold.tenant_id,
            "is_ready": True,
            "vendor_model": "vendor-m",
            "family": FAMILY,
            "job": facts,
            "request": frames(REQUEST),
            "answer": frames(answer),
            "now": now,
            "due_at": now,
            **Facts(status_code=200, ended_at=now).item(),
            **changes,
        }
        with connection.cursor() as cursor:
            cursor.execute(ESTIMATE, [payload(iter([item]))])
            return str(cursor.fetchone()[1])

    def waiting(self, **changes: Any) -> Hold:
        hold = self.opened()
        assert self.kept(hold, **changes) == "kept"
        return hold

    def balance(self) -> tuple[int, int]:
        wallet = Account.objects.get(tenant=self.tenant, kind="wallet")
        return wallet.posted_nanos, wallet.held_nanos

    def told(self) -> list[tuple[str, int]]:
        messages = Message.objects.filter(tenant=self.tenant)
        return [(message.user_message, message.count) for message in messages]


@pytest.fixture
def ground(world) -> Ground:
    return Ground(world)


def charge_of(hold: Hold) -> Charge:
    return Charge.objects.get(exchange_id=hold.exchange_id)


def state_of(hold: Hold) -> str:
    return Exchange.objects.get(id=hold.exchange_id).state


def test_what_the_vendor_did_not_count_is_counted_charged_and_told(ground: Ground) -> None:
    hold = ground.waiting()

    answer = settle_by_estimate(hold.exchange_id)

    assert (answer.outcome, answer.charge_nanos) == ("settled", COST_NANOS)
    charge = charge_of(hold)
    assert (charge.input_tokens, charge.output_tokens) == COUNTED
    assert (charge.usage_source, charge.outcome) == ("estimate", "answered")
    assert charge.estimate["family"] == FAMILY
    exchange = Exchange.objects.get(id=hold.exchange_id)
    assert exchange.message["user_message"] == ESTIMATED
    assert ground.told() == [(ESTIMATED, 1)]
    assert ground.balance() == (1_000_000_000 - COST_NANOS, 0)
    assert not EstimateJob.objects.filter(exchange_id=hold.exchange_id).exists()


def test_a_task_that_is_delivered_twice_changes_nothing(ground: Ground) -> None:
    hold = ground.waiting()
    settle_by_estimate(hold.exchange_id)
    before = (ground.balance(), ground.told())

    assert settle_by_estimate(hold.exchange_id) is None
    assert settle_by_estimate(hold.exchange_id) is None

    assert (ground.balance(), ground.told()) == before


def test_a_task_that_comes_before_its_job_does_nothing_yet(ground: Ground) -> None:
    hold = ground.opened()
    assert settle_by_estimate(hold.exchange_id) is None
    assert (state_of(hold), ground.balance()[1]) == ("open", HOLD_NANOS)
    ground.kept(hold)
    assert settle_by_estimate(hold.exchange_id).is_settled_now


def test_a_task_for_nothing_does_nothing(ground: Ground) -> None:
    assert settle_by_estimate(new_exchange_id()) is None


def test_a_check_point_of_a_running_stream_is_no_job_yet(ground: Ground) -> None:
    hold = ground.waiting(is_ready=False)
    assert settle_by_estimate(hold.exchange_id) is None
    assert state_of(hold) == "open"


def test_a_check_point_that_comes_late_reopens_nothing(ground: Ground) -> None:
    hold = ground.waiting()
    assert ground.kept(hold, is_ready=False) == "kept"
    assert EstimateJob.objects.get(exchange_id=hold.exchange_id).is_ready
    settle_by_estimate(hold.exchange_id)
    assert ground.kept(hold) == "already"
    assert ground.kept(hold, is_ready=False) == "already"
    assert not EstimateJob.objects.filter(exchange_id=hold.exchange_id).exists()
    assert state_of(hold) == "settled"


def test_tasks_at_once_settle_once(committed, world) -> None:
    ground = Ground(world)
    holds = [ground.waiting() for _ in range(3)]
    barrier = threading.Barrier(4)

    def settle(exchange_id: UUID) -> bool:
        barrier.wait()
        try:
            answer = settle_by_estimate(exchange_id)
        finally:
            connections.close_all()
        return answer is not None and answer.is_settled_now

    with ThreadPoolExecutor(4) as pool:
        for hold in holds:
            assert sum(pool.map(settle, [hold.exchange_id] * 4)) == 1
            assert charge_of(hold).charge_nanos == COST_NANOS
    assert ground.told() == [(ESTIMATED, 3)]
    assert ground.balance() == (1_000_000_000 - 3 * COST_NANOS, 0)


def test_the_sweep_finds_a_task_that_was_lost(ground: Ground) -> None:
    hold = ground.waiting()
    assert sweep() >= 1
    assert charge_of(hold).charge_nanos == COST_NANOS


def test_the_sweep_leaves_what_is_not_due(ground: Ground) -> None:
    hold = ground.waiting(due_at=datetime.now(UTC) + timedelta(minutes=1))
    sweep()
    assert state_of(hold) == "estimating"


def test_a_job_that_fails_is_postponed_keeps_its_hold_and_harms_no_other(ground: Ground) -> None:
    broken = ground.waiting(answer=b"x")
    EstimateJob.objects.filter(exchange_id=broken.exchange_id).update(answer=b"no frames at all")
    sound = ground.waiting()

    for attempt, pause_s in enumerate((10, 60, 300, 300), 1):
        before = timezone.now()
        sweep()
        job = EstimateJob.objects.get(exchange_id=broken.exchange_id)
        assert job.attempt_count == attempt
        assert job.last_error
        assert pause_s <= (job.due_at - before).total_seconds() < pause_s + 30
        assert ground.balance()[1] == HOLD_NANOS
        EstimateJob.objects.filter(pk=job.pk).update(due_at=before)

    assert (state_of(broken), state_of(sound)) == ("estimating", "settled")


def test_only_the_field_that_is_missing_is_estimated(ground: Ground) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}
    hold = ground.waiting(answer=a_stream(FIXED_ANSWER, usage=usage))
    settle_by_estimate(hold.exchange_id)
    charge = charge_of(hold)
    assert (charge.input_tokens, charge.output_tokens) == (7, COUNTED[1])
    assert charge.usage_source == "vendor"
    assert charge.vendor_usage == usage
    assert ground.told() == []


def test_what_was_not_kept_of_a_long_answer_is_counted_like_the_rest_up_to_its_bound(
    ground: Ground,
) -> None:
    answer = a_stream(FIXED_ANSWER)
    size = {"size_bytes": 10 * len(answer), "kept_bytes": len(answer)}
    long, bounded = ground.waiting(facts=size), ground.waiting(facts={**size, "output_bound": 200})
    for hold in (long, bounded):
        settle_by_estimate(hold.exchange_id)
    assert charge_of(long).output_tokens == 10 * COUNTED[1]
    assert charge_of(bounded).output_tokens == 200


def test_an_estimate_never_exceeds_what_was_asked_for(ground: Ground) -> None:
    hold = ground.waiting(facts={"output_bound": 5})
    settle_by_estimate(hold.exchange_id)
    assert charge_of(hold).output_tokens == 5


def test_without_a_price_nothing_is_charged(ground: Ground) -> None:
    hold = Maker(ground.tenant).held(0)
    ground.kept(hold)
    assert settle_by_estimate(hold.exchange_id).charge_nanos == 0
    assert charge_of(hold).output_tokens == COUNTED[1]


@pytest.fixture
def dead(db, settings) -> GatewayProcess:
    settings.GATEWAY_DEAD_AFTER_S = 1
    return GatewayProcess.objects.create(name="dead:1", stopped_at=timezone.now())


def test_what_a_dead_gateway_left_is_free_again(ground: Ground, dead: GatewayProcess) -> None:
    hold = ground.opened(process_id=dead.pk)
    sweep()
    charge = charge_of(hold)
    assert (charge.charge_nanos, charge.outcome) == (0, "gateway_died")
    exchange = Exchange.objects.get(id=hold.exchange_id)
    assert (exchange.error_code, exchange.status_code) == ("gateway_died", 502)
    assert ground.balance() == (1_000_000_000, 0)


def test_what_a_dead_gateway_had_delivered_is_charged(ground: Ground, dead: GatewayProcess) -> None:
    hold = ground.opened(process_id=dead.pk)
    cut = a_stream(FIXED_ANSWER).partition(b"[DONE]")[0]
    ground.kept(hold, is_ready=False, answer=cut, facts={"outcome": "gateway_died"})
    sweep()
    charge = charge_of(hold)
    assert (charge.output_tokens, charge.outcome) == (COUNTED[1], "gateway_died")
    assert ground.told() == [(INTERRUPTED, 1)]
    assert ground.balance() == (1_000_000_000 - COST_NANOS, 0)


def test_a_gateway_that_was_never_heard_of_is_dead(ground: Ground, dead: GatewayProcess) -> None:
    hold = ground.opened(process_id=2_000_000_000)
    sweep()
    assert charge_of(hold).charge_nanos == 0


def test_a_living_gateway_keeps_what_it_has(ground: Ground, settings) -> None:
    settings.GATEWAY_DEAD_AFTER_S = 1
    alive = GatewayProcess.objects.create(name="alive:1")
    hold = ground.opened(process_id=alive.pk)
    sweep()
    assert (state_of(hold), ground.balance()[1]) == ("open", HOLD_NANOS)


def test_nobody_is_dead_while_postgresql_itself_has_just_started(
    ground: Ground, dead: GatewayProcess, settings
) -> None:
    """A gateway cannot beat without PostgreSQL: its silence before the start says nothing."""
    settings.GATEWAY_DEAD_AFTER_S = 1_000_000
    hold = ground.opened(process_id=dead.pk)
    sweep()
    assert state_of(hold) == "open"


def test_a_true_settlement_that_comes_after_the_sweep_is_answered_already(
    ground: Ground, dead: GatewayProcess
) -> None:
    hold = ground.opened(process_id=dead.pk)
    sweep()
    before = ground.balance()
    late = Settlement(
        exchange_id=hold.exchange_id,
        tenant_id=hold.tenant_id,
        currency="USD",
        cost_nanos=500,
        usage=Usage(input_tokens=1),
        usage_source="vendor",
        outcome="answered",
        settled_at=datetime.now(UTC),
    )
    (answer,) = settle_now([late])
    assert (answer.outcome, answer.charge_nanos) == ("already", 0)
    assert ground.balance() == before
    assert charge_of(hold).charge_nanos == 0


def test_an_exchange_that_cannot_be_taken_over_waits_alone(
    ground: Ground, dead: GatewayProcess, monkeypatch
) -> None:
    first, second = (ground.opened(process_id=dead.pk) for _ in range(2))
    take_over = estimating._take_over

    def fails_once(exchange: Exchange) -> None:
        if exchange.id == first.exchange_id:
            raise ValueError("a bad row")
        take_over(exchange)

    monkeypatch.setattr(estimating, "_take_over", fails_once)
    sweep()
    assert (state_of(first), state_of(second)) == ("open", "settled")
    monkeypatch.undo()
    sweep()
    assert state_of(first) == "settled"
