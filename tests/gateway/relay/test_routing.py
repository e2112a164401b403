from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.relay import routing
from gateway.relay.routing import ATTEMPTS_MAX, in_order, prompt_key


def a_route(name: str, priority: int = 0, weight: int = 1) -> SimpleNamespace:
    vendor = SimpleNamespace(name=f"vendor {name}")
    return SimpleNamespace(
        name=name, vendor=vendor, vendor_model="m", priority=priority, weight=weight
    )


def names(routes, key: bytes | None = None) -> str:
    return "".join(route.name for route in in_order(routes, key))


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


class TestSticky:
    """One conversation keeps to one route while that takes calls."""

    def test_the_same_key_finds_the_same_order(self) -> None:
        routes = [a_route(name) for name in "abcd"]
        orders = {names(routes, bytes([number])) for number in range(50)}
        assert len(orders) > 10
        for number in range(50):
            assert names(routes, bytes([number])) == names(routes[::-1], bytes([number]))

    def test_many_keys_are_spread_by_weight(self) -> None:
        routes = [a_route("a", weight=3), a_route("b", weight=1), a_route("c", weight=0)]
        orders = [names(routes, number.to_bytes(2)) for number in range(4_000)]
        assert Counter(order[0] for order in orders)["a"] / 4_000 == pytest.approx(0.75, abs=0.03)
        assert {order[-1] for order in orders} == {"c"}

    def test_priority_goes_before_the_key(self) -> None:
        routes = [a_route("a", 0), a_route("b", 1, 100), a_route("c", 1, 100)]
        assert {names(routes, bytes([number]))[0] for number in range(50)} == {"a"}

    @given(st.binary(min_size=1, max_size=16), st.lists(st.integers(1, 32_767), min_size=2))
    @settings(max_examples=50)
    def test_when_a_route_goes_only_its_own_conversations_move(self, key, weights) -> None:
        routes = [a_route(f"{number}.", weight=weight) for number, weight in enumerate(weights)]
        first, *others = in_order(routes, key)
        left = [route for route in routes if route is not first]
        assert in_order(left, key)[: len(others)] == others[: len(left)]
        gone = next(route for route in routes if route is not first)
        assert in_order([route for route in routes if route is not gone], key)[0] is first


def a_conversation(*messages: dict, **fields) -> dict:
    return {"model": "alias-m", "messages": list(messages), **fields}


SYSTEM = {"role": "system", "content": "You are terse."}
FIRST = {"role": "user", "content": "Say hello."}


class TestPromptKey:
    def test_a_conversation_is_known_again_as_it_grows(self) -> None:
        short = a_conversation(SYSTEM, FIRST)
        long = a_conversation(SYSTEM, FIRST, {"role": "assistant", "content": "Hi"}, FIRST)
        assert prompt_key(1, "m", short) == prompt_key(1, "m", long)

    @pytest.mark.parametrize(
        "other",
        [
            (2, "m", a_conversation(SYSTEM, FIRST)),
            (1, "n", a_conversation(SYSTEM, FIRST)),
            (1, "m", a_conversation(FIRST)),
            (1, "m", a_conversation(SYSTEM, {"role": "user", "content": "Say bye."})),
            (1, "m", a_conversation(SYSTEM, FIRST, prompt_cache_key="mine")),
        ],
    )
    def test_another_tenant_model_or_beginning_is_another_key(self, other) -> None:
        assert prompt_key(*other) != prompt_key(1, "m", a_conversation(SYSTEM, FIRST))

    def test_the_tenants_own_word_decides(self) -> None:
        keys = {
            prompt_key(1, "m", a_conversation(message, prompt_cache_key="mine"))
            for message in (SYSTEM, FIRST)
        }
        assert len(keys) == 1

    def test_texts_in_parts_count_and_images_do_not(self) -> None:
        def parts(*content) -> bytes:
            return prompt_key(1, "m", a_conversation({"role": "user", "content": list(content)}))

        text, image = {"type": "text", "text": "What is it?"}, {"type": "image_url"}
        assert parts(text) == parts(text, image) != parts({"type": "text", "text": "Why?"})

    def test_only_the_beginning_of_a_long_text_counts(self) -> None:
        keys = {
            prompt_key(1, "m", a_conversation({"role": "user", "content": "a" * 2_048 + end}))
            for end in ("", "b", "c" * 100_000)
        }
        assert len(keys) == 1

    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(st.characters()),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=20,
        )
    )
    @settings(max_examples=50)
    def test_no_request_is_too_odd(self, value) -> None:
        messages = value if isinstance(value, list) else [value]
        odd = {"messages": messages, "prompt_cache_key": value}
        assert len(prompt_key(1, "m\ud800", odd)) == 16
        assert len(prompt_key(1, "m", {"messages": [{"role": value, "content": value}]})) == 16
