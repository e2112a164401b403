"""What is found open is settled once: who counts as dead, and what becomes of what they had."""

from datetime import timedelta

import pytest
from django.utils import timezone

from billing.audit import audit
from billing.late import correct_late_settlements
from billing.messages import INTERRUPTED
from billing.models import EstimateJob, Exchange, GatewayProcess, NoticeKind, StaffNotice
from billing.processes import SWEEP_PROCESS
from gateway.exchanges import recovery
from gateway.exchanges.recovery import OPEN_AT_LEAST_S, OPEN_MARGIN_S, PAUSE_S, sweep
from gateway.models import Model, Route, Vendor
from tests.gateway.exchanges.made import FIXED_ANSWER, a_stream
from tests.gateway.exchanges.uncounted import (
    COST_NANOS,
    COUNTED,
    HOLD_NANOS,
    Ground,
    charge_of,
    state_of,
)


@pytest.fixture
def ground(world) -> Ground:
    return Ground(world)


@pytest.fixture
def dead(db, settings) -> GatewayProcess:
    settings.GATEWAY_DEAD_AFTER_S = 1
    GatewayProcess.objects.update_or_create(
        pk=SWEEP_PROCESS,
        defaults={
            "name": "sweep",
            "started_at": timezone.now() - timedelta(minutes=1),
            "seen_at": timezone.now(),
        },
    )
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


def test_nobody_is_dead_after_a_pause_in_which_postgresql_did_not_answer(
    ground: Ground, dead: GatewayProcess
) -> None:
    """A gateway cannot beat without PostgreSQL: its silence says nothing then."""
    paused = GatewayProcess.objects.filter(pk=SWEEP_PROCESS)
    paused.update(seen_at=timezone.now() - timedelta(seconds=PAUSE_S + 1))
    hold = ground.opened(process_id=dead.pk)
    sweep()
    assert state_of(hold) == "open"
    paused.update(started_at=timezone.now() - timedelta(minutes=1))
    sweep()
    assert state_of(hold) == "settled"


def test_a_first_sweep_judges_nobody(ground: Ground, dead: GatewayProcess) -> None:
    GatewayProcess.objects.filter(pk=SWEEP_PROCESS).delete()
    hold = ground.opened(process_id=dead.pk)
    sweep()
    assert state_of(hold) == "open"


def test_what_a_living_gateway_leaves_open_beyond_every_time_out_is_taken_over(
    ground: Ground, dead: GatewayProcess
) -> None:
    alive = GatewayProcess.objects.create(name="alive:1")
    vendor = Vendor.objects.create(name="slow", base_url="http://v/v1", total_timeout_ms=7_200_000)
    routed = Model.objects.create(name=f"routed-{ground.tenant.slug}")
    Route.objects.create(model=routed, vendor=vendor, vendor_model="v")
    bound = timedelta(seconds=7_200 + OPEN_MARGIN_S)
    now = timezone.now()

    def opened(age: timedelta, model: str):
        return ground.opened(process_id=alive.pk, created_at=now - age, model=model)

    running = opened(bound - timedelta(seconds=5), routed.name)
    stuck = opened(bound + timedelta(seconds=5), routed.name)
    unrouted = opened(timedelta(seconds=OPEN_AT_LEAST_S + 5), "no-route-any-more")

    sweep()

    assert [state_of(hold) for hold in (running, stuck, unrouted)] == ["open", *["settled"] * 2]
    notices = StaffNotice.objects.filter(kind=NoticeKind.NEVER_SETTLED)
    assert set(notices.values_list("exchange_id", flat=True)) == {
        stuck.exchange_id,
        unrouted.exchange_id,
    }


def test_an_exchange_that_waits_for_a_job_that_is_gone_is_settled(
    ground: Ground, dead: GatewayProcess
) -> None:
    hold = ground.waiting(due_at=timezone.now() + timedelta(hours=1))
    EstimateJob.objects.filter(exchange_id=hold.exchange_id).delete()
    sweep()
    assert (state_of(hold), charge_of(hold).charge_nanos) == ("settled", 0)


def test_an_exchange_that_cannot_be_taken_over_waits_alone(
    ground: Ground, dead: GatewayProcess, monkeypatch
) -> None:
    first, second = (ground.opened(process_id=dead.pk) for _ in range(2))
    take_over = recovery._take_over

    def fails_once(exchange: Exchange, *, is_alive: bool) -> None:
        if exchange.id == first.exchange_id:
            raise ValueError("a bad row")
        take_over(exchange, is_alive=is_alive)

    monkeypatch.setattr(recovery, "_take_over", fails_once)
    sweep()
    assert (state_of(first), state_of(second)) == ("open", "settled")
    monkeypatch.undo()
    sweep()
    assert state_of(first) == "settled"


def test_an_answer_to_be_counted_that_comes_after_the_sweep_is_counted_and_corrected(
    ground: Ground, dead: GatewayProcess
) -> None:
    hold = ground.opened(process_id=dead.pk)
    sweep()
    assert ground.balance() == (1_000_000_000, 0)

    assert ground.kept(hold) == "kept"
    sweep()
    assert not EstimateJob.objects.filter(exchange_id=hold.exchange_id).exists()
    assert correct_late_settlements() == 1

    assert ground.balance() == (1_000_000_000 - COST_NANOS, 0)
    assert charge_of(hold).charge_nanos == 0
    assert ground.kept(hold) == "already"
    assert audit().differences == ()
