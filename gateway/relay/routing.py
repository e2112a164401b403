"""In which order the routes of a model are tried."""

import random
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from gateway.runtime.snapshot import RouteTo

ATTEMPTS_MAX = 4


def in_order(routes: Sequence[RouteTo]) -> list[RouteTo]:
    """Lowest priority number first; within one priority by chance, in proportion to weight."""
    if len(routes) == 1:
        return list(routes)
    ordered: list[RouteTo] = []
    for _, group in groupby(sorted(routes, key=_priority), key=_priority):
        ordered.extend(sorted(group, key=_lot, reverse=True))
    return ordered[:ATTEMPTS_MAX]


_priority = attrgetter("priority")


def _lot(route: RouteTo) -> float:
    """A draw whose order favours routes by weight (Efraimidis and Spirakis, 2006)."""
    return random.random() ** (1 / route.weight) if route.weight else 0.0
