import pytest

from billing.usage import Usage
from gateway.exchanges.selectors import exchange_view
from tests.gateway.exchanges.made import MODEL, Maker


@pytest.fixture
def maker(world) -> Maker:
    tenant = world.tenant()
    price = world.price(MODEL, input_price="0.2795", output_price="0.419", cached_input="0.028")
    return Maker(tenant, world.key(tenant).key, price)


def the_charge(maker: Maker, **changes):
    exchange = maker.settled(**changes)
    return exchange_view(maker.tenant.pk, exchange.id).charge


def test_the_charge_adds_up_to_the_last_digit(maker) -> None:
    estimate = {"sentence": "Counted.", "expected_error": "0.03"}
    charge = the_charge(maker, usage_source="estimate", estimate=estimate)
    assert [
        (line.dimension, line.quantity, line.unit_nanos, line.exact, line.nanos, line.source)
        for line in charge.lines
    ] == [
        ("input", 1_843, 279_500_000, "0.000515118500000", 515_119, "estimate"),
        ("output", 1_128, 419_000_000, "0.000472632000000", 472_632, "estimate"),
    ]
    assert charge.charge_nanos == 987_751
    assert charge.released_nanos == 1_243_592
    assert charge.error_nanos == 29_633
    assert (charge.is_estimated, charge.sentence) == (True, "Counted.")
    assert charge.price_id == maker.price.public_id


def test_each_quantity_says_where_it_came_from(maker) -> None:
    usage = Usage(input_tokens=10, cached_input_tokens=5, output_tokens=3)
    charge = the_charge(maker, usage=usage, flags=("completion_estimated",))
    assert [(line.dimension, line.source) for line in charge.lines] == [
        ("input", "vendor"),
        ("cached_input", "vendor"),
        ("output", "estimate"),
    ]
    assert charge.is_estimated
    assert charge.flags == ("completion_estimated",)


def test_a_price_per_request_is_a_line_of_its_own(maker, world) -> None:
    price = world.price(f"{MODEL}-2", per_request="0.001")
    charge = the_charge(Maker(maker.tenant, maker.key, price))
    line = charge.lines[-1]
    assert (line.dimension, line.quantity, line.unit, line.nanos, line.source) == (
        "request",
        1,
        "request",
        1_000_000,
        "price",
    )


def test_what_was_counted_and_not_charged_has_no_arithmetic(maker) -> None:
    charge = the_charge(maker, outcome="failed", usage_source="none", cost_nanos=0)
    assert (charge.lines, charge.charge_nanos, charge.released_nanos) == ((), 0, 2_231_343)
    assert charge.usage.input_tokens == 1_843


def test_a_charge_above_its_hold_releases_nothing(maker) -> None:
    charge = the_charge(maker, hold=maker.held(1_000))
    assert (charge.charge_nanos, charge.released_nanos, charge.shortfall_nanos) == (987_751, 0, 0)


def test_lines_add_up_to_charge_and_shortfall(maker, world) -> None:
    poor = Maker(world.tenant(balance="0.0005"), None, maker.price)
    charge = the_charge(poor, hold=poor.held(400_000))
    assert (charge.charge_nanos, charge.shortfall_nanos) == (500_000, 487_751)
    assert sum(line.nanos for line in charge.lines) == 987_751


def test_a_test_key_pays_nothing(maker) -> None:
    free = Maker(maker.tenant, maker.key)
    charge = the_charge(free, hold=free.held(0))
    assert (charge.lines, charge.price_id, charge.charge_nanos) == ((), None, 0)


def test_the_ledger_shows_held_and_posted(maker) -> None:
    exchange = maker.settled()
    entries = exchange_view(maker.tenant.pk, exchange.id).entries
    assert [(entry.phase, entry.nanos) for entry in entries] == [
        ("held", 2_231_343),
        ("posted", 987_751),
    ]
    assert entries[0].public_id.startswith("tr_")
    voided = maker.settled(cost_nanos=0, usage=Usage(), usage_source="none", outcome="failed")
    entries = exchange_view(maker.tenant.pk, voided.id).entries
    assert [entry.phase for entry in entries] == ["held", "voided"]
