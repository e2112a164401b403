from collections import Counter
from types import SimpleNamespace

import pytest

from gateway.relay import routing
from gateway.relay.routing import ATTEMPTS_MAX, in_order


def a_route(name: str, priority: int = 0, weight: int = 1) -> SimpleNamespace:
    return SimpleNamespace(name=name, priority=priority, weight=weight)


def names(routes) -> str:
    return "".join(route.name for route in in_order(routes))


@pytest.fixture(autouse=True)
def seeded(monkeypatch) -> None:
    from random import Random

    monkeypatch.setattr(routing, "random", Random(7))


def test_one_route_is_the_order() -> None:
    assert names([a_route("a")]) == "a"


def test_lowest_priority_goes_first_whatever_the_weights() -> None:
    routes = [a_route("c", 2, 100), a_route("a", 0), a_route("b", 1, 50)]
    assert {names(routes) for _ in range(50)} == {"abc"}


def test_within_a_priority_chance_decides_by_weight() -> None:
    routes = [a_route("a", weight=3), a_route("b", weight=1)]
    first = Counter(names(routes)[0] for _ in range(4_000))
    assert first["a"] / 4_000 == pytest.approx(0.75, abs=0.03)
    assert {names(routes) for _ in range(100)} == {"ab", "ba"}


def test_a_route_without_weight_is_a_last_resort() -> None:
    routes = [a_route("a", weight=0), a_route("b"), a_route("c")]
    assert {names(routes)[-1] for _ in range(100)} == {"a"}
    assert names([a_route("a", weight=0)]) == "a"


def test_a_request_is_tried_a_few_times_only() -> None:
    routes = [a_route(str(number)) for number in range(9)]
    assert {len(in_order(routes)) for _ in range(20)} == {ATTEMPTS_MAX}


def test_what_was_given_is_left_as_it_was() -> None:
    routes = [a_route("b", 1), a_route("a", 0)]
    in_order(routes)
    assert [route.name for route in routes] == ["b", "a"]
