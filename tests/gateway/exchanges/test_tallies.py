from datetime import UTC, datetime, timedelta

import pytest

from gateway.exchanges import tallies
from gateway.exchanges.selectors import ExchangeFilters
from gateway.exchanges.tallies import count_exchanges, histogram
from tests.gateway.exchanges.made import MODEL, Maker

ANY = ExchangeFilters()


@pytest.fixture
def maker(world) -> Maker:
    tenant = world.tenant()
    return Maker(tenant, world.key(tenant).key, world.price(MODEL))


def make_one_of_each(maker: Maker) -> int:
    """Return what they cost together."""
    maker.held()
    maker.estimating()
    maker.refused()
    maker.settled(outcome="failed", cost_nanos=0, usage_source="none")
    charged = [
        maker.settled(),
        maker.settled(outcome="client_gone"),
        maker.settled(usage_source="estimate"),
        maker.settled(flags=("prompt_estimated",)),
        maker.settled(outcome="partial", usage_source="estimate"),
    ]
    return sum(exchange.charge.charge_nanos for exchange in charged)


def test_kinds_add_up(maker) -> None:
    cost = make_one_of_each(maker)
    tally = count_exchanges(maker.tenant.pk, ANY)
    assert (tally.total, tally.at_vendor_usage, tally.at_estimate) == (9, 2, 3)
    assert (tally.not_charged, tally.running, tally.charged_nanos) == (2, 2, cost)
    assert not tally.is_capped


def test_counts_follow_the_filter_and_the_tenant(maker, world) -> None:
    make_one_of_each(maker)
    assert count_exchanges(maker.tenant.pk, ExchangeFilters(status="refused")).total == 1
    assert count_exchanges(world.tenant("Charlies").pk, ANY).total == 0


def test_beyond_the_bound_a_count_says_so(maker, monkeypatch) -> None:
    monkeypatch.setattr(tallies, "COUNT_MAX", 2)
    for _ in range(4):
        maker.held()
    tally = count_exchanges(maker.tenant.pk, ANY)
    assert (tally.total, tally.is_capped) == (3, True)


def test_a_histogram_has_the_steps_that_have_any(maker) -> None:
    noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    for minutes in (1, 2, 20):
        maker.held(created_at=noon + timedelta(minutes=minutes))
    buckets = histogram(maker.tenant.pk, ANY, step_s=900)
    assert [(bucket.start, bucket.tally.running) for bucket in buckets] == [
        (noon, 2),
        (noon + timedelta(minutes=15), 1),
    ]
