"""Which vendors gateways take no calls to just now, as each said with its last heartbeat."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from billing.models import GatewayProcess
from billing.processes import SWEEP_PROCESS
from gateway.runtime.breakers import State

WORDS = {
    State.OPEN: "open",
    State.HALF_OPEN: "half open",
    State.RESTING: "resting, as the vendor asked",
}


@dataclass(frozen=True, slots=True)
class BreakerLine:
    """One breaker that is not closed. `model` is empty for the whole vendor's.

    `gateways` of `of` living processes say so; the first to try again does it in `left_s`.
    """

    model: str
    words: str
    gateways: int
    of: int
    left_s: int


def breakers_by_vendor(now: datetime) -> dict[int, tuple[BreakerLine, ...]]:
    """Of the vendors that have any, by their keys. One query."""
    alive = GatewayProcess.objects.filter(
        stopped_at=None, seen_at__gte=now - timedelta(seconds=settings.GATEWAY_DEAD_AFTER_S)
    ).exclude(pk=SWEEP_PROCESS)
    said = list(alive.values_list("troubles", flat=True))
    left: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for troubles in said:
        for trouble in troubles:
            left[trouble["vendor_id"], trouble["model"], trouble["state"]].append(trouble["left_s"])
    found: dict[int, list[BreakerLine]] = defaultdict(list)
    for (vendor_id, model, state), seconds in sorted(left.items()):
        line = BreakerLine(model, WORDS[State(state)], len(seconds), len(said), min(seconds))
        found[vendor_id].append(line)
    return {vendor_id: tuple(lines) for vendor_id, lines in found.items()}
