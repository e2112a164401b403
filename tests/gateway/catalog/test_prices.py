from datetime import UTC, datetime

import pytest
from django.db import transaction
from time_machine import travel

from billing.models import Price
from gateway.catalog.apply import apply
from gateway.catalog.entries import CatalogMistakes
from gateway.catalog.file import parse

pytestmark = pytest.mark.django_db

JANUARY = "2026-01-01T00:00:00Z"
FEBRUARY = "2026-02-01T00:00:00Z"
MARCH = "2026-03-01T00:00:00Z"
MAY = "2026-05-01T00:00:00Z"
NOW = datetime(2026, 4, 1, tzinfo=UTC)


@pytest.fixture
def clock():
    with travel(NOW, tick=False) as traveller:
        yield traveller


def price(number: str, start: str | None = None, **others: str) -> str:
    values = {"input": number, "output": number, **others}
    if start:
        values["effective_from"] = start
    return "{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}"


def apply_prices(*prices: str) -> list[str]:
    """Price lines of the diff, and warnings."""
    text = f"vendors: []\nmodels:\n- name: m\n  routes: []\n  prices: [{', '.join(prices)}]\n"
    with transaction.atomic():
        lines = apply(parse(text.encode(), {}), source="f", actor="alice").lines()
    return [line for line in lines if "price" in line and "no route" not in line]


def refusal(*prices: str) -> str:
    before = versions()
    with pytest.raises(CatalogMistakes) as found:
        apply_prices(*prices)
    assert versions() == before
    return str(found.value)


def versions() -> list[tuple[str, str, int]]:
    rows = Price.objects.order_by("currency", "effective_from")
    return [(row.currency, f"{row.effective_from:%Y-%m-%d}", row.input_nanos) for row in rows]


def test_price_without_a_time_is_in_force_from_now(clock):
    assert apply_prices(price("1")) == [
        "+ price of m in USD from 2026-04-01T00:00:00Z: input 1, output 1"
    ]
    assert versions() == [("USD", "2026-04-01", 10**9)]


def test_equal_price_makes_no_version(clock):
    apply_prices(price("1"))
    clock.shift(60)
    assert apply_prices(price("1.000000000")) == []
    assert len(versions()) == 1


def test_changed_price_is_a_new_version_and_says_what_changed(clock):
    apply_prices(price("1"))
    clock.shift(86_400)
    assert apply_prices(price("1", cached_input="0.5", per_request="1")) == [
        "+ price of m in USD from 2026-04-02T00:00:00Z: cached_input none → 0.5, per_request 0 → 1"
    ]
    assert len(versions()) == 2


def test_history_of_a_model_without_one_may_begin_in_the_past(clock):
    lines = apply_prices(price("2", FEBRUARY), price("1", JANUARY), price("3"))
    assert len(lines) == 3
    assert versions() == [
        ("USD", "2026-01-01", 1 * 10**9),
        ("USD", "2026-02-01", 2 * 10**9),
        ("USD", "2026-04-01", 3 * 10**9),
    ]
    clock.shift(60)
    assert apply_prices(price("2", FEBRUARY), price("1", JANUARY), price("3")) == []


def test_planned_price_is_stored_and_stays_planned(clock):
    assert len(apply_prices(price("1", JANUARY), price("2", MAY))) == 2
    assert apply_prices(price("1", JANUARY), price("2", MAY)) == []
    assert apply_prices(price("1")) == [
        "! price of m in USD from 2026-05-01T00:00:00Z is stored and not in the file: it stays"
    ]


def test_price_that_was_in_force_never_changes(clock):
    apply_prices(price("1", JANUARY))
    for start in (JANUARY, MARCH):
        assert refusal(price("2", start)) == (
            f"line 5: the price of m in USD at {start} is input 1, output 1, and "
            "a stored price never changes; expected the same numbers, a later effective_from, or "
            "none for from now on."
        )


def test_planned_price_never_changes_either(clock):
    apply_prices(price("1"), price("2", MAY))
    assert f"at {MAY} is input 2" in refusal(price("1"), price("3", MAY))


def test_file_that_is_silent_about_the_price_of_today_is_refused(clock):
    apply_prices(price("1", JANUARY), price("2", MARCH))
    assert refusal(price("1", JANUARY)) == (
        "line 5: since 2026-03-01T00:00:00Z another price of m in USD is in force: input 2, "
        "output 2; expected that one too, or a price without effective_from to "
        "replace it from now on."
    )
    assert len(apply_prices(price("1", JANUARY), price("1"))) == 1
    assert versions()[-1] == ("USD", "2026-04-01", 10**9)


def test_time_before_the_first_price_may_still_be_filled(clock):
    apply_prices(price("2", FEBRUARY))
    assert len(apply_prices(price("1", JANUARY), price("2", FEBRUARY))) == 1
    assert versions()[0] == ("USD", "2026-01-01", 10**9)


def test_equal_planned_price_is_compared_with_the_one_before_it(clock):
    apply_prices(price("1"), price("2", MAY))
    june = "2026-06-01T00:00:00Z"
    assert len(apply_prices(price("1"), price("2", MAY), price("1", june))) == 1
    july = "2026-07-01T00:00:00Z"
    assert apply_prices(price("1"), price("2", MAY), price("1", june), price("1", july)) == []


def test_currencies_have_histories_of_their_own(clock):
    apply_prices(price("1"), price("0.9", currency="EUR"))
    assert versions() == [("EUR", "2026-04-01", 900_000_000), ("USD", "2026-04-01", 10**9)]
    clock.shift(60)
    (warning,) = apply_prices(price("1"))
    assert warning == ("! price of m in EUR is not in the file: the one in force stays")


def test_price_in_the_future_alone_is_no_price_yet(clock):
    assert apply_prices(price("1", MAY))[1:] == [
        "! model m has no price in USD yet: requests for it are refused until then"
    ]


def test_free_is_an_explicit_zero_and_no_price_is_told(clock):
    assert apply_prices(price("0")) == [
        "+ price of m in USD from 2026-04-01T00:00:00Z: input 0, output 0"
    ]
    text = "vendors: []\nmodels: [{name: other, routes: []}]"
    lines = list(apply(parse(text.encode(), {}), source="f", actor="alice").lines())
    assert "! model other has no price: requests for it are refused" in lines


def test_all_wrong_prices_are_told_at_once(clock):
    apply_prices(price("1", JANUARY), price("2", MAY))
    assert refusal(price("3", JANUARY), price("4", MAY)).count("line 5: the price of m") == 2


def test_incomplete_price_is_stored_with_a_warning_and_takes_the_model_off_sale(clock):
    apply_prices(price("1"))
    clock.shift(60)
    assert apply_prices("{input: 2}") == [
        "+ price of m in USD from 2026-04-01T00:01:00Z: input 1 → 2, output 1 → none",
        (
            "! the price of m in USD from 2026-04-01T00:01:00Z is incomplete, it needs input and "
            "output: requests for the model are refused while it is in force"
        ),
    ]
    clock.shift(60)
    (warning,) = apply_prices("{input: 2}")
    assert "is incomplete" in warning


def test_price_that_says_nothing_at_all_is_incomplete(clock):
    lines = apply_prices("{}")
    assert lines[0] == "+ price of m in USD from 2026-04-01T00:00:00Z: nothing"
    assert "is incomplete" in lines[1]


def test_tiers_are_part_of_a_version(clock):
    tier = "[{above_prompt_tokens: 200_000, input: 2, output: 3}]"
    assert apply_prices(price("1", tiers=tier)) == [
        (
            "+ price of m in USD from 2026-04-01T00:00:00Z: input 1, output 1, "
            "above 200000 prompt tokens input 2 output 3"
        )
    ]
    clock.shift(60)
    assert apply_prices(price("1", tiers=tier)) == []
    assert apply_prices(price("1", tiers=tier.replace("2,", "4,"))) == [
        "+ price of m in USD from 2026-04-01T00:01:00Z: above 200000 prompt tokens input 4 output 3"
    ]
    clock.shift(60)
    assert apply_prices(price("1")) == ["+ price of m in USD from 2026-04-01T00:02:00Z: no tiers"]
    assert Price.objects.order_by("effective_from").first().tiers == [
        {"above_prompt_tokens": 200_000, "input_nanos": 2 * 10**9, "output_nanos": 3 * 10**9}
    ]
