from datetime import UTC, datetime, timedelta

import pytest

from billing.ids import new_exchange_id, request_id
from gateway.exchanges.selectors import (
    STATUSES,
    ExchangeFilters,
    exchange_row,
    exchange_view,
    first_id_at,
    list_exchanges,
    newer_cursor,
)
from tests.gateway.exchanges.made import MODEL, Maker, a_stream, record

ANY = ExchangeFilters()


@pytest.fixture
def maker(world) -> Maker:
    tenant = world.tenant()
    return Maker(tenant, world.key(tenant).key, world.price(MODEL))


def ids(page) -> list:
    return [row.exchange.id for row in page.rows]


def test_everything_about_an_exchange_is_in_its_view(maker) -> None:
    exchange = maker.settled()
    record(exchange, answer=a_stream("hi"))
    view = exchange_view(maker.tenant.pk, exchange.id)
    assert view.public_id == request_id(exchange.id)
    assert view.status == "settled"
    assert view.key.masked == maker.key.masked
    assert view.last_attempt["vendor"] == "north"
    assert view.legs.client_request.body["model"] == MODEL
    assert view.charge.charge_nanos > 0


def test_another_tenant_finds_nothing(maker, world) -> None:
    exchange = maker.settled()
    record(exchange, answer=a_stream("hi"))
    charlie = world.tenant("Charlies")
    assert exchange_view(charlie.pk, exchange.id) is None
    assert exchange_row(charlie.pk, exchange.id) is None
    assert list_exchanges(charlie.pk, ANY).rows == ()
    by_key = ExchangeFilters(key_public_id=maker.key.public_id)
    assert list_exchanges(charlie.pk, by_key).rows == ()
    assert exchange_view(maker.tenant.pk, new_exchange_id()) is None


def test_pages_go_from_newest_to_oldest_and_back(maker) -> None:
    made = [maker.settled().id for _ in range(5)][::-1]
    first = list_exchanges(maker.tenant.pk, ANY, limit=2)
    assert (ids(first), first.older) == (made[:2], made[1])
    second = list_exchanges(maker.tenant.pk, ANY, older_than=first.older, limit=2)
    assert (ids(second), second.older) == (made[2:4], made[3])
    last = list_exchanges(maker.tenant.pk, ANY, older_than=second.older, limit=2)
    assert (ids(last), last.older) == (made[4:], None)
    back = newer_cursor(maker.tenant.pk, ANY, newer_than=made[4], limit=2)
    assert ids(list_exchanges(maker.tenant.pk, ANY, older_than=back, limit=2)) == made[2:4]
    assert newer_cursor(maker.tenant.pk, ANY, newer_than=made[2], limit=2) is None


def test_a_page_is_never_longer_than_allowed(maker) -> None:
    made = [maker.held().exchange_id for _ in range(3)]
    assert len(list_exchanges(maker.tenant.pk, ANY, limit=0).rows) == 1
    assert len(list_exchanges(maker.tenant.pk, ANY, limit=9_999).rows) == len(made)


def test_each_status_finds_its_own(maker) -> None:
    made = {
        "open": maker.held().exchange_id,
        "estimating": maker.estimating().id,
        "settled": maker.settled().id,
        "at_estimate": maker.settled(usage_source="estimate").id,
        "failed": maker.settled(outcome="failed", cost_nanos=0, usage_source="none").id,
        "refused": maker.refused().id,
        "client_left": maker.settled(outcome="client_gone").id,
    }
    assert set(made) == set(STATUSES)
    for status, exchange_id in made.items():
        page = list_exchanges(maker.tenant.pk, ExchangeFilters(status=status))
        assert ids(page) == [exchange_id]
        assert page.rows[0].status == status


def test_what_broke_off_has_failed_even_at_an_estimate(maker) -> None:
    exchange = maker.settled(outcome="partial", usage_source="estimate")
    tenant = maker.tenant.pk
    assert exchange_row(tenant, exchange.id).status == "failed"
    assert ids(list_exchanges(tenant, ExchangeFilters(status="at_estimate"))) == []
    assert ids(list_exchanges(tenant, ExchangeFilters(estimates_only=True))) == [exchange.id]
    assert ids(list_exchanges(tenant, ExchangeFilters(errors_only=True))) == [exchange.id]


def test_a_partial_estimate_is_an_estimate(maker) -> None:
    flagged = maker.settled(flags=("completion_estimated",))
    plain = maker.settled(flags=("usage_mismatch",))
    tenant = maker.tenant.pk
    assert ids(list_exchanges(tenant, ExchangeFilters(status="at_estimate"))) == [flagged.id]
    assert ids(list_exchanges(tenant, ExchangeFilters(status="settled"))) == [plain.id]
    assert ids(list_exchanges(tenant, ExchangeFilters(estimates_only=True))) == [flagged.id]


@pytest.mark.parametrize(
    ("narrowed", "other"),
    [
        ({"model": "a"}, {"model": "b"}),
        ({"is_stream": True}, {"is_stream": False}),
        ({"is_test": True}, {"is_test": False}),
    ],
)
def test_filters_narrow(maker, narrowed: dict, other: dict) -> None:
    wanted = maker.held(**narrowed).exchange_id
    maker.held(**other)
    assert ids(list_exchanges(maker.tenant.pk, ExchangeFilters(**narrowed))) == [wanted]


def test_a_key_narrows(maker, world) -> None:
    second = Maker(maker.tenant, world.key(maker.tenant, "second").key)
    maker.held()
    wanted = second.held().exchange_id
    filters = ExchangeFilters(key_public_id=second.key.public_id)
    page = list_exchanges(maker.tenant.pk, filters)
    assert (ids(page), page.rows[0].key.name) == ([wanted], "second")
    assert ids(list_exchanges(maker.tenant.pk, ExchangeFilters(key_public_id="nobody"))) == []


def test_a_period_narrows(maker) -> None:
    exchange_id = maker.held().exchange_id
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    tenant = maker.tenant.pk
    inside = ExchangeFilters(since=now - hour, until=now + hour)
    assert ids(list_exchanges(tenant, inside)) == [exchange_id]
    assert ids(list_exchanges(tenant, ExchangeFilters(since=now + hour))) == []
    assert ids(list_exchanges(tenant, ExchangeFilters(until=now - hour))) == []


def test_days_add_up_to_their_range(maker) -> None:
    """Half-open: midnight is the new day's, the last moment the old one's, none twice or never."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day, tick = timedelta(days=1), timedelta(milliseconds=1)
    moments = [midnight - day, midnight - tick, midnight]
    made = [
        maker.held(exchange_id=first_id_at(moment), created_at=moment).exchange_id
        for moment in moments
    ]

    def within(since: datetime, until: datetime) -> list:
        return ids(list_exchanges(maker.tenant.pk, ExchangeFilters(since=since, until=until)))

    first, second = within(midnight - day, midnight), within(midnight, midnight + day)
    assert (first, second) == ([made[1], made[0]], [made[2]])
    assert within(midnight - day, midnight + day) == second + first


def test_ids_carry_their_time() -> None:
    before = datetime.now(UTC)
    exchange_id = new_exchange_id()
    assert first_id_at(before) <= exchange_id < first_id_at(before + timedelta(seconds=5))
    assert first_id_at(datetime.fromtimestamp(0, UTC)).int == 0


def test_a_page_costs_few_queries(maker, django_assert_num_queries) -> None:
    for _ in range(5):
        maker.settled()
    with django_assert_num_queries(3):
        list_exchanges(maker.tenant.pk, ANY)
