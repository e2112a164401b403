"""Leaving a vendor in the middle of its answer, and seeing whether it stops."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.qualification.activity import GAUGES, Read
from gateway.qualification.answers import CannotProbeError
from gateway.qualification.authored import ENDLESS_ANSWER_TOKENS
from gateway.qualification.findings import Finding, failed, undecided
from gateway.qualification.probe import Prober, Running

LEAVE_AFTER_S: Final = 0.25  # of the answer: pieces come in bursts, so a few tell no pace
POLL_S: Final = 0.05
SLOW_ENOUGH_S: Final = 1.0  # of an answer still to come, so that a stop can be told from its end
MS_PER_S: Final = 1_000

Gauge = Callable[[], Awaitable[int]]


async def show_of(prober: Prober) -> Gauge:
    """How to ask this vendor for the number of answers in work. Raises CannotProbeError."""
    for path, read in GAUGES:
        if read(await prober.look(path)) is not None:
            return _asking(prober, path, read)
    raise CannotProbeError("the vendor does not show what it is working on, nor then a stop")


def _asking(prober: Prober, path: str, read: Read) -> Gauge:
    async def ask() -> int:
        count = read(await prober.look(path))
        if count is None:
            raise CannotProbeError("the vendor has stopped showing what it is working on")
        return count

    return ask


async def leave_and_watch(prober: Prober, running: Running, gauge: Gauge) -> Finding:
    """Leave a long answer near its beginning: it must not be worked on for half of its rest."""
    piece_s = await _pace_s(running)
    if piece_s is None:
        return undecided("the answer ended before anyone could leave")
    rest_s = piece_s * (ENDLESS_ANSWER_TOKENS - running.streamed.pieces)
    if not await gauge() or rest_s < SLOW_ENOUGH_S:
        return undecided("the vendor answers too fast for its stop to be told from its end")
    running.leave()
    left_s = _now_s()
    limit_s = min(prober.bounds.stop_s, rest_s / 2)
    while await gauge():
        if _now_s() - left_s > limit_s:
            return failed("the vendor went on after we had left", waited_ms=_ms(limit_s))
        await asyncio.sleep(POLL_S)
    return Finding(passed=True, observed={"stopped_after_ms": _ms(_now_s() - left_s)})


async def _pace_s(running: Running) -> float | None:
    """Seconds from one piece of the answer to the next; None where it has ended already."""
    if not await running.read_until(1):
        return None
    first_s = _now_s()
    while _now_s() - first_s < LEAVE_AFTER_S:
        if not await running.read_until(running.streamed.pieces + 1):
            return None
    return (_now_s() - first_s) / running.streamed.pieces


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _ms(seconds: float) -> int:
    return round(seconds * MS_PER_S)
