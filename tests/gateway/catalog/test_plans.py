from datetime import UTC, datetime

import pytest
from django.db import transaction
from time_machine import travel

from billing.models import Plan, PlanTerms, Price
from gateway.catalog.apply import apply
from gateway.catalog.entries import CatalogMistakes
from gateway.catalog.export import export
from gateway.catalog.file import parse

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 4, 1, tzinfo=UTC)

WHOLE = """\
{currency: USD, effective_from: 2026-01-01T00:00:00Z, monthly_fee: 20, included_credit: 10.5,
 discount_percent: 12.25, allowed_models: [b, a, b], requests_per_minute: 60,
 concurrent_requests: 5, spend_limits: [{period: month, amount: 100},
 {period: day, amount: 7, action: warn}]}"""


@pytest.fixture
def clock():
    with travel(NOW, tick=False) as traveller:
        yield traveller


def apply_plans(*terms: str, models: str = "[]") -> list[str]:
    text = f"vendors: []\nmodels: {models}\nplans:\n- name: team\n  terms: [{', '.join(terms)}]\n"
    with transaction.atomic():
        return list(apply(parse(text.encode(), {}), source="f", actor="alice").lines())


def refusal(*terms: str, **other: str) -> str:
    with pytest.raises(CatalogMistakes) as found:
        apply_plans(*terms, **other)
    return str(found.value)


def test_terms_are_stored_as_they_stand(clock):
    assert apply_plans(WHOLE) == [
        "+ plan team",
        (
            "+ version of plan team in USD from 2026-01-01T00:00:00Z: monthly_fee 20, "
            "included_credit 10.5, discount_percent 12.25, allowed_models a b, "
            "requests_per_minute 60, concurrent_requests 5, spend limit a day 7 warn, "
            "spend limit a month 100 hard"
        ),
        "2 added, 0 changed, 0 removed",
    ]
    terms = PlanTerms.objects.get(plan__name="team")
    assert (terms.monthly_fee_nanos, terms.included_credit_nanos) == (20 * 10**9, 10_500_000_000)
    assert (terms.price_factor_bps, terms.allowed_models) == (8_775, ["a", "b"])
    assert (terms.requests_per_minute, terms.concurrent_requests) == (60, 5)
    assert terms.spend_limits == {
        "day": {"amount_nanos": 7 * 10**9, "action": "warn"},
        "month": {"amount_nanos": 100 * 10**9, "action": "hard"},
    }


def test_same_terms_again_are_no_change(clock):
    apply_plans(WHOLE)
    clock.shift(60)
    assert apply_plans(WHOLE) == ["no changes"]
    assert apply_plans("{}")[0] == (
        "+ version of plan team in USD from 2026-04-01T00:01:00Z: monthly_fee 20 → none, "
        "included_credit 10.5 → none, discount_percent 12.25 → none, allowed_models a b → none, "
        "requests_per_minute 60 → none, concurrent_requests 5 → none, "
        "spend limit a day 7 warn → none, spend limit a month 100 hard → none"
    )


def test_terms_that_were_in_force_never_change(clock):
    apply_plans("{effective_from: 2026-01-01T00:00:00Z, markup_percent: 5}")
    assert refusal("{effective_from: 2026-01-01T00:00:00Z, markup_percent: 6}") == (
        "line 5: the version of plan team in USD at 2026-01-01T00:00:00Z is markup_percent 5, and "
        "a stored version never changes; expected the same numbers, a later effective_from, or "
        "none for from now on."
    )


def test_export_of_plans_applied_again_changes_nothing(clock):
    models = "[{name: m, routes: [], prices: [{input: 1, output: 1}, {plan: team, input: 2}]}]"
    apply_plans(WHOLE, "{currency: EUR, markup_percent: 5}", models=models)
    clock.shift(60)
    text = export()
    assert "  - name: team\n    terms:\n      - currency: EUR\n" in text
    assert "        discount_percent: 12.25\n" in text
    lines = list(apply(parse(text.encode(), {}), source="f", actor="alice").lines())
    assert lines[-1] == "no changes"


def test_a_plan_that_the_file_does_not_name_stays(clock):
    apply_plans(WHOLE)
    lines = list(apply(parse(b"vendors: []\nmodels: []", {}), source="f", actor="alice").lines())
    assert lines == ["no changes"]
    assert Plan.objects.filter(name="team").exists()


def test_a_plans_price_has_a_history_of_its_own(clock):
    model = "[{{name: m, routes: [], prices: [{{input: 1, output: 1}}, {}]}}]"
    lines = apply_plans(models=model.format("{plan: team, input: 2, output: 2}"))
    assert lines[2:4] == [
        "+ price of m in USD from 2026-04-01T00:00:00Z: input 1, output 1",
        "+ price of m on plan team in USD from 2026-04-01T00:00:00Z: input 2, output 2",
    ]
    own = Price.objects.get(plan__name="team")
    assert (own.model, own.input_nanos) == ("m", 2 * 10**9)
    clock.shift(60)
    assert apply_plans(models="[{name: m, routes: [], prices: [{input: 1, output: 1}]}]")[0] == (
        "! model m has no route: requests for it are refused"
    )


def test_a_price_of_an_unknown_plan_is_a_mistake(clock):
    models = "[{name: m, routes: [], prices: [{plan: gone, input: 1, output: 1}]}]"
    assert refusal(models=models) == (
        "line 2: the price's plan 'gone' is unknown; expected a name under plans."
    )
    assert not Price.objects.exists()


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (
            "{discount_percent: 5, markup_percent: 5}",
            "terms have a discount and a markup; expected one.",
        ),
        ("{discount_percent: 100.01}", "discount_percent is above 100; expected at most 100."),
        ("{discount_percent: 1.001}", "discount_percent is '1.001'; expected at most 2 decimals."),
        (
            "{spend_limits: [{period: hour, amount: 1}]}",
            "period is 'hour'; expected day, week, month, total.",
        ),
        (
            "{spend_limits: [{period: day, amount: 1}, {period: day, amount: 2}]}",
            "spend limit day stands twice; first on line 5.",
        ),
        ("{}, {}", "terms USD from now stands twice; first on line 5."),
    ],
)
def test_wrong_terms_are_told(clock, terms, words):
    assert refusal(terms) == f"line 5: {words}"
    assert not Plan.objects.exists()
