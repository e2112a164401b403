"""Which routes are worth a call: breakers, and the rests that vendors ask for.

There are two kinds of breaker. One a vendor counts failures to reach it at all: those concern all
of its models. One a route (a vendor and its model) counts time-outs, lost connections and 5xx: a
model may be down while its neighbours answer. What a client may have caused counts nowhere, or a
tenant could close a vendor to all the others; see `Blame`.

Here is no clock, no socket and no task: the caller says what happened and reads `now_s` from the
clock that it was given. What is known is this process's own. It is forgotten with the process,
and with the last route to the address.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from gateway import errors
from gateway.errors import ApiError
from gateway.relay.failures import Blame, Failure
from gateway.runtime.snapshot import BreakerSettings, RouteTo

PAUSE_MAX_S: Final = 300.0  # a vendor that stays away is asked at least so often
REST_MAX_S: Final = 300.0  # the longest rest that a vendor's Retry-After gives a route
PROBE_WAIT_S: Final = 1.0  # when to ask again while somebody else's call is the probe
DOUBLINGS_MAX: Final = 16  # beyond any PAUSE_MAX_S, and far from the end of floats
RESTING_STATUSES: Final = frozenset({429, 503})
WHOLE_VENDOR: Final = ""

Place = tuple[int, str, str]
"""A vendor's id and address, and its model; WHOLE_VENDOR for the vendor's own breaker.

With the address, so that a vendor that moves begins anew.
"""


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    RESTING = "resting"  # never a breaker's: what a route is called that its vendor sent to rest


class Breaker:
    """One breaker, whose settings come with each call, since the catalog may change them.

    Closed, it counts. It opens on `failures` failures in a row, no two of them a window apart, or
    on as many within the window where they are `percent` of all calls. Open, it lets nobody in
    for `pause_s`, doubled by each probe that failed; then one call at a time, the probe, whose
    success closes it.

    `enter` answers a number, by which the end of the call is told: what began before the breaker
    turned says nothing about what is behind it now.
    """

    __slots__ = (
        "_failed",
        "_failed_before",
        "_failed_probes",
        "_fine",
        "_fine_before",
        "_in_a_row",
        "_is_probing",
        "_last_failed_s",
        "_turn",
        "_window_since_s",
        "since_s",
        "state",
        "until_s",
    )
    state: State
    since_s: float
    until_s: float
    _fine: int
    _failed: int
    _failed_probes: int
    _last_failed_s: float

    def __init__(self) -> None:
        self._turn = 0
        self._close(0.0)

    def wait_s(self, now_s: float) -> float:
        """How long until a call may go; 0.0: it may."""
        if self.state is State.CLOSED:
            return 0.0
        if self._is_probing:
            return PROBE_WAIT_S
        return max(0.0, self.until_s - now_s)

    def enter(self) -> int:
        """Begin a call where `wait_s` is 0.0; `succeed`, `fail` or `give_up` tell its end."""
        if self.state is not State.CLOSED:
            self.state = State.HALF_OPEN
            self._is_probing = True
        return self._turn

    def succeed(self, turn: int, now_s: float, settings: BreakerSettings) -> None:
        if turn != self._turn:
            return
        if self.state is State.HALF_OPEN:
            self._close(now_s)
            return
        self._roll(now_s, settings.window_s)
        self._fine += 1
        self._in_a_row = 0

    def fail(self, turn: int, now_s: float, settings: BreakerSettings) -> None:
        if turn != self._turn:
            return
        if self.state is State.HALF_OPEN:
            self._failed_probes = min(self._failed_probes + 1, DOUBLINGS_MAX)
            self._open(now_s, settings)
            return
        self._roll(now_s, settings.window_s)
        is_run = now_s - self._last_failed_s < settings.window_s
        self._in_a_row = self._in_a_row + 1 if is_run else 1
        self._last_failed_s = now_s
        self._failed += 1
        if self._is_enough(settings):
            self._open(now_s, settings)

    def give_up(self, turn: int) -> None:
        """The call said nothing about the vendor: another may be the probe at once."""
        if turn == self._turn and self.state is State.HALF_OPEN:
            self.state = State.OPEN
            self._is_probing = False

    def _is_enough(self, settings: BreakerSettings) -> bool:
        if not settings.failures:
            return False
        if self._in_a_row >= settings.failures:
            return True
        failed = self._failed + self._failed_before
        calls = failed + self._fine + self._fine_before
        return failed >= settings.failures and failed * 100 >= calls * settings.percent

    def _open(self, now_s: float, settings: BreakerSettings) -> None:
        self._turn += 1
        self._is_probing = False
        self.state = State.OPEN
        self.since_s = now_s
        self.until_s = now_s + min(settings.pause_s * 2.0**self._failed_probes, PAUSE_MAX_S)

    def _close(self, now_s: float) -> None:
        self._turn += 1
        self.state = State.CLOSED
        self.since_s = self._window_since_s = now_s
        self.until_s = 0.0
        self._fine = self._fine_before = self._failed = self._failed_before = 0
        self._in_a_row = self._failed_probes = 0
        self._last_failed_s = -math.inf
        self._is_probing = False

    def _roll(self, now_s: float, window_s: float) -> None:
        """Count in halves of the window: what is counted is half a window to a window old."""
        half_s = window_s / 2
        passed_s = now_s - self._window_since_s
        if passed_s < half_s:
            return
        is_next = passed_s < window_s
        self._fine_before = self._fine if is_next else 0
        self._failed_before = self._failed if is_next else 0
        self._fine = self._failed = 0
        self._window_since_s = self._window_since_s + half_s if is_next else now_s


@dataclass(frozen=True, slots=True)
class Rest:
    """A vendor asked to be left alone. `status` is the answer by which it did."""

    status: int
    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """For staff: a place that takes no calls, or one at a time. `left_s` until a next one."""

    vendor_id: int
    vendor_model: str
    state: State
    since_s: float
    left_s: float

    def told(self) -> dict[str, Any]:
        """As the process tells of it with its heartbeat; `model` is empty for a whole vendor."""
        return {
            "vendor_id": self.vendor_id,
            "model": self.vendor_model,
            "state": self.state.value,
            "left_s": round(self.left_s),
        }


class Permit:
    """One call's way through both of its breakers. Say how it `ended`; `leave` in any case."""

    __slots__ = ("_breakers", "_is_over", "_own", "_own_turn", "_route", "_vendor", "_vendor_turn")

    def __init__(
        self,
        breakers: "Breakers",
        route: RouteTo,
        vendor: tuple[Breaker, int],
        own: tuple[Breaker, int],
    ) -> None:
        self._breakers = breakers
        self._route = route
        self._vendor, self._vendor_turn = vendor
        self._own, self._own_turn = own
        self._is_over = False

    def spoke(self) -> None:
        """A first piece of an answer: who waits for a probe need not wait for its end."""
        breakers, settings = self._breakers, self._route.vendor.breaker
        if not breakers.is_troubled or self._is_over:
            return
        now_s = breakers.now_s()
        for breaker, turn in ((self._vendor, self._vendor_turn), (self._own, self._own_turn)):
            if breaker.state is State.HALF_OPEN:
                breaker.succeed(turn, now_s, settings)
        breakers.note(self._route, self._vendor, self._own)

    def ended(self, failure: Failure | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._tell(failure)

    def leave(self) -> None:
        """Of a call that came to no end of its own; nothing after `ended`."""
        if self._is_over:
            return
        self._is_over = True
        self._vendor.give_up(self._vendor_turn)
        self._own.give_up(self._own_turn)

    def _tell(self, failure: Failure | None) -> None:
        breakers, settings = self._breakers, self._route.vendor.breaker
        now_s = breakers.now_s()
        blame = Blame.NOBODY if failure is None else failure.blame
        if blame is Blame.VENDOR:
            self._vendor.fail(self._vendor_turn, now_s, settings)
        elif blame is Blame.OURS:
            self._vendor.give_up(self._vendor_turn)
        else:  # whatever came of it, the vendor was reached
            self._vendor.succeed(self._vendor_turn, now_s, settings)
        if blame is Blame.ROUTE:
            self._own.fail(self._own_turn, now_s, settings)
        elif blame is Blame.NOBODY:
            self._own.succeed(self._own_turn, now_s, settings)
        else:
            self._own.give_up(self._own_turn)
        if breakers.is_troubled or blame in TROUBLING:
            breakers.note(self._route, self._vendor, self._own)
        if failure is not None and failure.retry_after_s:
            breakers.rest(self._route, failure)


TROUBLING: Final = frozenset({Blame.VENDOR, Blame.ROUTE})


class Breakers:
    """All of one process. `clock` is seconds that never go back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.now_s = clock
        self._breakers: dict[Place, Breaker] = {}
        self._troubled: dict[Place, Breaker] = {}
        self._rests: dict[Place, Rest] = {}

    @property
    def is_troubled(self) -> bool:
        """Whether any breaker is not closed; while none is, routes need not be asked for."""
        return bool(self._troubled)

    def enter(self, route: RouteTo) -> Permit | None:
        """Let a call through, perhaps as the probe; None: this route takes none now."""
        now_s = self.now_s()
        if self._rests and self._rest_s(route, now_s):
            return None
        vendor = self._breaker(_vendor_place(route))
        own = self._breaker(_place(route))
        if vendor.wait_s(now_s) or own.wait_s(now_s):
            return None
        return Permit(self, route, (vendor, vendor.enter()), (own, own.enter()))

    def open_to(self, routes: Sequence[RouteTo]) -> Sequence[RouteTo]:
        """Those that would take a call now. Claims nothing: see `enter`."""
        if not self._troubled and not self._rests:
            return routes
        now_s = self.now_s()
        return [route for route in routes if not self.wait_s(route, now_s)]

    def wait_s(self, route: RouteTo, now_s: float) -> float:
        waits_s = [self._rest_s(route, now_s)]
        for place in (_vendor_place(route), _place(route)):
            breaker = self._troubled.get(place)
            waits_s.append(0.0 if breaker is None else breaker.wait_s(now_s))
        return max(waits_s)

    def refusal(self, routes: Sequence[RouteTo]) -> ApiError:
        """What a client is told where none of the routes takes a call, and when one will."""
        now_s = self.now_s()
        waits_s = [self.wait_s(route, now_s) for route in routes]
        soonest_s = min(waits_s)
        rest = self._rests.get(_place(routes[waits_s.index(soonest_s)]))
        wait_s = max(1, math.ceil(soonest_s))
        if rest is not None and rest.status == HTTPStatus.TOO_MANY_REQUESTS:
            return errors.upstream_rate_limited(wait_s)
        return errors.upstream_unavailable(retry_after_s=wait_s)

    def troubles(self) -> Iterator[Trouble]:
        now_s = self.now_s()
        for (vendor_id, _, model), breaker in self._troubled.items():
            left_s = breaker.wait_s(now_s)
            yield Trouble(vendor_id, model, breaker.state, breaker.since_s, left_s)
        for (vendor_id, _, model), rest in self._rests.items():
            if rest.until_s > now_s:
                left_s = rest.until_s - now_s
                yield Trouble(vendor_id, model, State.RESTING, rest.since_s, left_s)

    def keep_only(self, routes: Iterable[RouteTo]) -> None:
        """Forget what no route leads to any more; called when the catalog has changed."""
        used: set[Place] = set()
        for route in routes:
            used |= {_place(route), _vendor_place(route)}
        known: tuple[dict[Place, Breaker] | dict[Place, Rest], ...]
        known = (self._breakers, self._troubled, self._rests)
        for places in known:
            for place in places.keys() - used:
                del places[place]

    def note(self, route: RouteTo, vendor: Breaker, own: Breaker) -> None:
        """Keep the list of those that are not closed."""
        for place, breaker in ((_vendor_place(route), vendor), (_place(route), own)):
            if self._breakers.get(place) is not breaker:
                continue  # forgotten meanwhile
            if breaker.state is State.CLOSED:
                self._troubled.pop(place, None)
            else:
                self._troubled[place] = breaker

    def rest(self, route: RouteTo, failure: Failure) -> None:
        status, wait_s = failure.vendor_status, failure.retry_after_s
        if not route.vendor.breaker.failures or status not in RESTING_STATUSES or not wait_s:
            return
        now_s = self.now_s()
        self._rests[_place(route)] = Rest(status, now_s, now_s + min(wait_s, REST_MAX_S))

    def _rest_s(self, route: RouteTo, now_s: float) -> float:
        rest = self._rests.get(_place(route))
        if rest is None:
            return 0.0
        if rest.until_s <= now_s:
            del self._rests[_place(route)]
            return 0.0
        return rest.until_s - now_s

    def _breaker(self, place: Place) -> Breaker:
        breaker = self._breakers.get(place)
        if breaker is None:
            breaker = self._breakers[place] = Breaker()
        return breaker


def _place(route: RouteTo) -> Place:
    return route.vendor.id, route.vendor.base_url, route.vendor_model


def _vendor_place(route: RouteTo) -> Place:
    return route.vendor.id, route.vendor.base_url, WHOLE_VENDOR
