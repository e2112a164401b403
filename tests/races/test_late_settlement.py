"""The sweep and a late settlement at once: whoever is first, the tenant pays what was true."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from billing.audit import audit
from billing.late import correct_late_settlements
from billing.models import Charge, GatewayProcess
from billing.processes import SWEEP_PROCESS
from gateway.exchanges.recovery import sweep
from tests.billing.acts import UNIT, held, settle, wallet_of

pytestmark = pytest.mark.usefixtures("committed")

ROUNDS = 50
HOLD = 2_000
COST = 700


@pytest.fixture
def dead(settings) -> GatewayProcess:
    settings.GATEWAY_DEAD_AFTER_S = 1
    now = timezone.now()
    GatewayProcess.objects.update_or_create(
        pk=SWEEP_PROCESS,
        defaults={"name": "sweep", "started_at": now - timedelta(minutes=1), "seen_at": now},
    )
    return GatewayProcess.objects.create(name="dead:late", stopped_at=now)


def at_once(*acts) -> None:
    barrier = threading.Barrier(len(acts))

    def run(act) -> None:
        try:
            connection.ensure_connection()
            barrier.wait()
            act()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        list(pool.map(run, acts))


def test_fifty_rounds_of_sweep_and_settlement_cost_the_truth(world, dead) -> None:
    tenant = world.tenant(balance="1")
    outcomes = set()
    for _ in range(ROUNDS):
        hold = held(tenant, HOLD, process_id=dead.pk)
        at_once(sweep, lambda hold=hold: settle(hold, COST))
        outcomes.add(Charge.objects.get(exchange_id=hold.exchange_id).outcome)
    at_once(correct_late_settlements, correct_late_settlements, correct_late_settlements)

    wallet = wallet_of(tenant)
    assert (wallet.posted_nanos, wallet.held_nanos) == (UNIT - ROUNDS * COST, 0)
    assert outcomes <= {"answered", "gateway_died"}
    assert audit().differences == ()
