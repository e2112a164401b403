"""Breakers and rests, on a clock that is turned by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import errors
from gateway.relay.failures import Blame, Failure
from gateway.runtime.breakers import (
    PAUSE_MAX_S,
    PROBE_WAIT_S,
    REST_MAX_S,
    Breaker,
    Breakers,
    State,
)
from gateway.runtime.snapshot import BreakerSettings, RouteTo
from tests.gateway.relay.driver import a_vendor

SETTINGS = BreakerSettings(failures=3, percent=50, window_s=30.0, pause_s=10.0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breakers(clock) -> Breakers:
    return Breakers(clock)


def a_route(model: str = "vendor-m", **changes) -> RouteTo:
    return RouteTo(a_vendor(breaker=SETTINGS, **changes), model, None, 0, 1)


def failed(blame: Blame, **said) -> Failure:
    return Failure(errors.upstream_unavailable(), blame=blame, **said)


def fail(breakers: Breakers, route: RouteTo, blame: Blame = Blame.ROUTE, times: int = 3) -> None:
    for _ in range(times):
        breakers.enter(route).ended(failed(blame))


class TestBreaker:
    def test_a_run_of_failures_opens_it_and_a_success_between_begins_anew(self) -> None:
        breaker = Breaker()
        for now_s in (1.0, 2.0):
            breaker.fail(breaker.enter(), now_s, SETTINGS)
        for now_s in (2.1, 2.2, 2.3, 2.4):
            breaker.succeed(breaker.enter(), now_s, SETTINGS)
        breaker.fail(breaker.enter(), 2.5, replace(SETTINGS, percent=90))
        assert breaker.state is State.CLOSED
        for now_s in (3.0, 4.0):
            breaker.fail(breaker.enter(), now_s, replace(SETTINGS, percent=90))
        assert breaker.state is State.OPEN
        assert breaker.wait_s(4.0) == 10.0

    def test_failures_far_apart_are_no_run(self) -> None:
        breaker = Breaker()
        for number in range(10):
            breaker.fail(breaker.enter(), number * 31.0, SETTINGS)
        assert breaker.state is State.CLOSED

    def test_a_share_of_failures_opens_it(self) -> None:
        breaker = Breaker()
        for number in range(2):
            breaker.succeed(breaker.enter(), float(number), SETTINGS)
            breaker.fail(breaker.enter(), float(number), SETTINGS)
        assert breaker.state is State.CLOSED  # 2 of 4, and 3 are needed
        breaker.succeed(breaker.enter(), 3.0, SETTINGS)
        breaker.fail(breaker.enter(), 3.0, SETTINGS)
        assert breaker.state is State.OPEN

    def test_none_in_a_row_is_never(self) -> None:
        breaker = Breaker()
        for _ in range(1_000):
            breaker.fail(breaker.enter(), 1.0, replace(SETTINGS, failures=0))
        assert breaker.state is State.CLOSED

    def test_each_probe_that_fails_doubles_the_pause(self) -> None:
        breaker, now_s, waits_s = opened(0.0), 0.0, []
        for _ in range(8):
            waits_s.append(breaker.wait_s(now_s))
            now_s += waits_s[-1]
            breaker.fail(breaker.enter(), now_s, SETTINGS)
        assert waits_s == [10.0, 20.0, 40.0, 80.0, 160.0, *[PAUSE_MAX_S] * 3]
        now_s += PAUSE_MAX_S
        breaker.succeed(breaker.enter(), now_s, SETTINGS)
        for _ in range(3):
            breaker.fail(breaker.enter(), now_s, SETTINGS)
        assert breaker.wait_s(now_s) == 10.0

    def test_what_began_before_it_opened_does_not_close_it(self) -> None:
        breaker = Breaker()
        early = breaker.enter()
        for _ in range(3):
            breaker.fail(breaker.enter(), 1.0, SETTINGS)
        breaker.succeed(early, 2.0, SETTINGS)
        assert breaker.state is State.OPEN
        probe = breaker.enter()
        breaker.fail(early, 12.0, SETTINGS)
        breaker.give_up(early)
        assert breaker.wait_s(12.0) == PROBE_WAIT_S
        breaker.succeed(probe, 13.0, SETTINGS)
        assert breaker.state is State.CLOSED

    def test_a_probe_that_says_nothing_lets_the_next_one_go(self) -> None:
        breaker = opened(0.0)
        breaker.give_up(breaker.enter())
        assert (breaker.state, breaker.wait_s(10.0)) == (State.OPEN, 0.0)
        breaker.succeed(breaker.enter(), 10.0, SETTINGS)
        assert breaker.state is State.CLOSED


def opened(now_s: float) -> Breaker:
    breaker = Breaker()
    for _ in range(SETTINGS.failures):
        breaker.fail(breaker.enter(), now_s, SETTINGS)
    return breaker


steps = st.lists(
    st.tuples(
        st.sampled_from(("enter", "enter", "succeed", "fail", "fail", "give_up")),
        st.integers(0, 3),
        st.sampled_from((0.0, 0.5, 4.0, 11.0, 16.0)),
    ),
    max_size=80,
)


class Played:
    """A breaker, and a plain record of its calls by which to judge it."""

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.now_s = 0.0
        self.turns = 0  # how often it opened, opened again or closed
        self.calls: list[tuple[int, int]] = []  # under way: its number, and the turn it began in
        self.ends: list[tuple[float, bool]] = []  # of this turn: when, and whether it failed

    def enter(self) -> None:
        if not self.breaker.wait_s(self.now_s):
            self.calls.append((self.breaker.enter(), self.turns))

    def end(self, act: str, place: int) -> None:
        if not self.calls:
            return
        number, turn = self.calls.pop(place % len(self.calls))
        was, tell = self.breaker.state, getattr(self.breaker, act)
        tell(number) if act == "give_up" else tell(number, self.now_s, SETTINGS)
        if turn != self.turns:
            assert self.breaker.state is was  # what is late decides nothing
        elif was is State.HALF_OPEN:
            assert self.breaker.state is (State.CLOSED if act == "succeed" else State.OPEN)
            self.turn_if(act != "give_up")
        elif act != "give_up":
            self.ends.append((self.now_s, act == "fail"))
            self.judge()

    def judge(self) -> None:
        recent = [failed for at_s, failed in self.ends if self.now_s - at_s <= 30.0]
        last = self.ends[-3:]
        is_run = len(last) == 3 and all(
            failed and at_s - before_s < 30.0
            for (at_s, failed), (before_s, _) in zip(last, [last[0], *last], strict=False)
        )
        is_open = self.breaker.state is State.OPEN
        assert is_open or not is_run
        assert is_run or sum(recent) >= 3 or not is_open
        if self.now_s < 15.0:  # so far everything is counted
            assert is_open == (is_run or (sum(recent) >= 3 and sum(recent) * 2 >= len(recent)))
        self.turn_if(is_open)

    def turn_if(self, has_turned: bool) -> None:
        if has_turned:
            self.turns += 1
            self.ends = []


@given(steps)
@settings(max_examples=200, deadline=None)
def test_whatever_happens_in_any_order_the_rules_hold(acts) -> None:
    played = Played()
    for act, place, passed_s in acts:
        played.now_s += passed_s
        if act == "enter":
            played.enter()
        else:
            played.end(act, place)
        state = played.breaker.state
        probes = [turn for _, turn in played.calls if turn == played.turns]
        assert state is State.CLOSED or len(probes) <= 1
        assert (state is State.HALF_OPEN) == (state is not State.CLOSED and len(probes) == 1)


class TestBreakers:
    def test_a_route_that_fails_leaves_its_vendors_other_models_alone(self, breakers) -> None:
        bad, good = a_route("bad"), a_route("good")
        fail(breakers, bad)
        assert breakers.open_to([bad, good]) == [good]
        assert breakers.enter(bad) is None

    def test_a_vendor_that_is_not_reached_is_closed_to_all_its_models(self, breakers) -> None:
        fail(breakers, a_route("one"), Blame.VENDOR)
        assert breakers.open_to([a_route("other"), a_route("one")]) == []
        assert breakers.enter(a_route("other")) is None
        elsewhere = a_route(id=2)
        assert breakers.open_to([a_route("one"), elsewhere]) == [elsewhere]

    @pytest.mark.parametrize("blame", [Blame.NOBODY, Blame.UNKNOWN, Blame.OURS])
    def test_what_a_client_or_we_may_have_caused_counts_nowhere(self, breakers, blame) -> None:
        fail(breakers, a_route(), blame, times=100)
        assert not breakers.is_troubled
        assert breakers.open_to([a_route()]) == [a_route()]

    def test_one_live_request_probes_and_its_success_lets_the_others_in(
        self, breakers, clock
    ) -> None:
        route = a_route()
        fail(breakers, route)
        clock.now_s += 10.0
        assert breakers.open_to([route]) == [route]
        probe = breakers.enter(route)
        assert breakers.enter(route) is None
        assert breakers.open_to([route]) == []
        probe.ended(None)
        assert breakers.enter(route) is not None
        assert not breakers.is_troubled

    def test_a_first_piece_of_an_answer_is_success_enough(self, breakers, clock) -> None:
        route = a_route()
        fail(breakers, route)
        clock.now_s += 10.0
        probe = breakers.enter(route)
        probe.spoke()
        assert breakers.open_to([route]) == [route]
        probe.ended(None)
        assert not breakers.is_troubled

    def test_a_probe_whose_client_leaves_makes_way_for_another(self, breakers, clock) -> None:
        route = a_route()
        fail(breakers, route, Blame.VENDOR)
        clock.now_s += 10.0
        breakers.enter(route).leave()
        probe = breakers.enter(route)
        probe.ended(None)
        probe.leave()
        assert breakers.open_to([route]) == [route]

    def test_a_refusal_says_when_a_route_will_be_tried(self, breakers, clock) -> None:
        fail(breakers, a_route("one"))
        clock.now_s += 4.5
        fail(breakers, a_route("two"))
        refusal = breakers.refusal([a_route("two"), a_route("one")])
        assert (refusal.status, refusal.code) == (503, "upstream_unavailable")
        assert (refusal.should_retry, refusal.retry_after_s) == (True, 6)

    def test_a_vendor_that_moves_begins_anew(self, breakers) -> None:
        fail(breakers, a_route())
        moved = a_route(base_url="http://127.0.0.1:2/v1")
        assert breakers.open_to([a_route(), moved]) == [moved]

    def test_what_no_route_leads_to_is_forgotten(self, breakers) -> None:
        kept, gone = a_route("kept"), a_route("gone")
        for route in (kept, gone):
            fail(breakers, route)
        breakers.enter(a_route("idle")).ended(
            failed(Blame.NOBODY, vendor_status=429, retry_after_s=9)
        )
        under_way = breakers.enter(a_route("late"))
        breakers.keep_only([kept])
        under_way.ended(failed(Blame.ROUTE))
        assert [trouble.vendor_model for trouble in breakers.troubles()] == ["kept"]
        assert breakers.open_to([kept, gone]) == [gone]

    def test_staff_see_each_place_and_how_long(self, breakers, clock) -> None:
        fail(breakers, a_route("one"))
        fail(breakers, a_route("two", id=2), Blame.VENDOR)
        breakers.enter(a_route("three")).ended(
            failed(Blame.NOBODY, vendor_status=429, retry_after_s=30)
        )
        clock.now_s += 4.0
        assert [
            (seen.vendor_id, seen.vendor_model, seen.state.value, seen.left_s)
            for seen in breakers.troubles()
        ] == [(1, "one", "open", 6.0), (2, "", "open", 6.0), (1, "three", "resting", 26.0)]


class TestRests:
    def test_a_route_rests_for_as_long_as_its_vendor_asks(self, breakers, clock) -> None:
        route, other = a_route(), a_route("other")
        breakers.enter(route).ended(failed(Blame.NOBODY, vendor_status=429, retry_after_s=30))
        assert breakers.open_to([route, other]) == [other]
        assert breakers.enter(route) is None
        refusal = breakers.refusal([route])
        assert (refusal.status, refusal.code) == (429, "upstream_rate_limited")
        assert refusal.retry_after_s == 30
        clock.now_s += 30.0
        assert breakers.open_to([route]) == [route]
        assert breakers.enter(route) is not None

    def test_a_busy_vendor_is_unavailable_and_not_limited(self, breakers) -> None:
        breakers.enter(a_route()).ended(failed(Blame.ROUTE, vendor_status=503, retry_after_s=7))
        refusal = breakers.refusal([a_route()])
        assert (refusal.status, refusal.retry_after_s) == (503, 7)

    def test_no_vendor_sends_a_route_away_for_a_day(self, breakers) -> None:
        breakers.enter(a_route()).ended(
            failed(Blame.NOBODY, vendor_status=429, retry_after_s=86_400)
        )
        assert breakers.refusal([a_route()]).retry_after_s == REST_MAX_S

    def test_a_vendor_that_is_always_asked_has_no_rest(self, breakers) -> None:
        route = a_route()
        always = replace(route, vendor=replace(route.vendor, breaker=BreakerSettings(failures=0)))
        breakers.enter(always).ended(failed(Blame.NOBODY, vendor_status=429, retry_after_s=30))
        assert breakers.open_to([always]) == [always]

    @pytest.mark.parametrize(
        ("status", "retry_after_s"), [(400, 30), (500, 30), (None, 30), (429, 0), (429, None)]
    )
    def test_other_answers_ask_for_no_rest(self, breakers, status, retry_after_s) -> None:
        breakers.enter(a_route()).ended(
            failed(Blame.NOBODY, vendor_status=status, retry_after_s=retry_after_s)
        )
        assert breakers.open_to([a_route()]) == [a_route()]
