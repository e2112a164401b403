"""Exchanges that a worker settles: counted once, whoever delivers the task and how often."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connections
from django.utils import timezone

from billing.audit import audit
from billing.ids import new_exchange_id
from billing.messages import ESTIMATED
from billing.models import EstimateJob, Exchange, NoticeKind, StaffNotice
from gateway.exchanges import estimating
from gateway.exchanges.estimating import GIVEN_UP, RETRY_AFTER_S, TRIES_MAX, settle_by_estimate
from gateway.exchanges.recovery import sweep
from tests.gateway.exchanges.made import FIXED_ANSWER, Maker, a_stream
from tests.gateway.exchanges.uncounted import (
    COST_NANOS,
    COUNTED,
    FAMILY,
    HOLD_NANOS,
    Ground,
    charge_of,
    state_of,
)


@pytest.fixture
def ground(world) -> Ground:
    return Ground(world)


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


def make_unreadable(hold) -> None:
    EstimateJob.objects.filter(exchange_id=hold.exchange_id).update(answer=b"no frames at all")


def make_due() -> None:
    EstimateJob.objects.update(due_at=timezone.now())


def test_a_job_that_fails_is_postponed_keeps_its_hold_and_harms_no_other(ground: Ground) -> None:
    broken, sound = ground.waiting(), ground.waiting()
    make_unreadable(broken)

    for attempt, pause_s in enumerate(RETRY_AFTER_S, 1):
        before = timezone.now()
        sweep()
        job = EstimateJob.objects.get(exchange_id=broken.exchange_id)
        assert job.attempt_count == attempt
        assert job.last_error == "ZstdError"
        assert pause_s - 30 <= (job.due_at - before).total_seconds() < pause_s + 30
        assert ground.balance()[1] == HOLD_NANOS
        make_due()

    assert (state_of(broken), state_of(sound)) == ("estimating", "settled")
    (notice,) = StaffNotice.objects.filter(exchange_id=broken.exchange_id)
    assert (notice.kind, notice.tenant_id) == (NoticeKind.ESTIMATE_FAILS, ground.tenant.pk)


def test_after_the_last_try_nothing_is_charged_and_staff_are_told(ground: Ground) -> None:
    broken = ground.waiting()
    make_unreadable(broken)
    EstimateJob.objects.filter(exchange_id=broken.exchange_id).update(
        attempt_count=TRIES_MAX, last_error="ZstdError"
    )

    sweep()
    sweep()

    charge = charge_of(broken)
    assert (charge.charge_nanos, charge.usage_source, charge.flags) == (0, "none", [GIVEN_UP])
    assert ground.balance() == (1_000_000_000, 0)
    assert ground.told() == []
    (notice,) = StaffNotice.objects.filter(exchange_id=broken.exchange_id)
    assert (notice.kind, "ZstdError" in notice.words) == (NoticeKind.ESTIMATE_GIVEN_UP, True)
    assert not EstimateJob.objects.filter(exchange_id=broken.exchange_id).exists()
    assert audit().differences == ()


def test_a_job_that_kills_its_worker_ends_too(ground: Ground, monkeypatch) -> None:
    """A try is counted before it is made: nothing that a dead worker does not do is waited for."""
    hold = ground.waiting()

    class Killed(BaseException):
        """As `kill -9`: nothing of ours runs any more."""

    def dies(*_arguments) -> None:
        raise Killed

    monkeypatch.setattr(estimating, "_count_and_settle", dies)
    for attempt in range(1, TRIES_MAX + 1):
        with pytest.raises(Killed):
            settle_by_estimate(hold.exchange_id)
        assert EstimateJob.objects.get(exchange_id=hold.exchange_id).attempt_count == attempt
        assert settle_by_estimate(hold.exchange_id) is None  # delivered again at once: not now
        make_due()

    assert settle_by_estimate(hold.exchange_id).charge_nanos == 0
    assert (state_of(hold), ground.balance()[1]) == ("settled", 0)


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
