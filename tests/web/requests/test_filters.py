from datetime import UTC, datetime

import pytest
from django.http import QueryDict

from gateway.web.periods import period_of
from gateway.web.requests.filters import Asked, menus, period_choices

NOW = datetime(2026, 12, 1, 14, 20, 5, tzinfo=UTC)


def asked(query: str) -> Asked:
    return Asked.of(QueryDict(query).dict(), NOW)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "period=month&model=deepseek-v4&key=abc&status=failed&stream=whole&errors=1&estimates=1",
        "period=custom&model=a%2Fb%26c&since=2026-11-03&until=2026-11-05",
    ],
)
def test_an_address_says_again_what_it_was_asked_for(query):
    found = asked(query)
    assert asked(found.url("").removeprefix("?")) == found
    assert found.url("/requests") == (f"/requests?{query}" if query else "/requests")


def test_the_filters_are_those_of_the_query():
    filters = asked("period=yesterday&model=m&key=k&status=at_estimate&stream=stream").filters(
        is_test=True
    )
    assert (filters.model, filters.key_public_id, filters.status) == ("m", "k", "at_estimate")
    assert (filters.is_stream, filters.is_test) == (True, True)
    assert (filters.errors_only, filters.estimates_only) == (False, False)
    assert (filters.since, filters.until) == (
        datetime(2026, 11, 30, tzinfo=UTC),
        datetime(2026, 12, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    "query",
    ["status=x&stream=y&errors=yes&period=z", "model=%00", f"model={'m' * 257}", "key=a%00b"],
)
def test_what_there_is_not_narrows_nothing(query):
    assert asked(query) == asked("")


def test_a_period_alone_narrows_nothing():
    assert not asked("period=month").is_narrowed
    assert asked("period=month&errors=1").is_narrowed
    assert asked("period=month&errors=1").cleared() == asked("period=month")


def test_a_choice_keeps_all_the_rest():
    found = asked("period=month&errors=1")
    (model, key, status, stream) = menus(found, "/r", models={"a b": "a b"}, keys={"k": "ci"})
    assert [choice.url for choice in model.choices] == [
        "/r?period=month&errors=1",
        "/r?period=month&model=a+b&errors=1",
    ]
    assert [choice.label for choice in key.choices] == ["any", "ci"]
    assert [len(menu.choices) for menu in (status, stream)] == [8, 3]
    assert [choice.is_current for choice in model.choices] == [True, False]


def test_a_chip_shows_the_word_of_its_value():
    (_, key, status, _) = menus(
        asked("key=k&status=client_left"), "/r", models={}, keys={"k": "ci-agents"}
    )
    assert (key.value, status.value) == ("ci-agents", "Client left")


def test_a_key_that_is_not_in_the_menu_is_shown_by_its_id():
    (_, key, _, _) = menus(asked("key=gone"), "/r", models={}, keys={})
    assert key.value == "gone"


def test_periods_can_be_chosen_and_today_needs_no_word():
    choices = period_choices(asked("errors=1"), "/r", NOW)
    assert [choice.url for choice in choices[:2]] == [
        "/r?errors=1",
        "/r?period=yesterday&errors=1",
    ]
    assert [choice.is_current for choice in choices] == [True, False, False, False, False]
    assert asked("").but(period=period_of("7d", NOW)).url("/r") == "/r?period=7d"
