"""Meters, bars and the waterfall: small SVG made by the server, `{% load drawings %}`.

Sizes are SVG attributes in per cent, because the content policy allows no inline style; colours
are classes of `static/farthing.css`. Figures always stand beside a drawing, never only in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from django import template

register = template.Library()

MS_PER_SECOND = 1_000


def _percent(part: float, whole: float) -> str:
    return f"{min(max(part / whole, 0), 1) * 100:.3f}%" if whole > 0 else "0%"


@register.inclusion_tag("components/meter.html")
def meter(used: int, limit: int, on_hold: int = 0, label: str = "") -> dict[str, object]:
    """Used and on hold of a limit, all in one unit; amber when the two fill it."""
    return {
        "used": _percent(used, limit),
        "filled": _percent(used + on_hold, limit),
        "at_limit": used + on_hold >= limit,
        "label": label,
    }


@register.inclusion_tag("components/hold.html")
def hold_bar(charge_nanos: int, held_nanos: int) -> dict[str, object]:
    """Solid what was charged of a hold, hatched what was released."""
    return {"charged": _percent(charge_nanos, held_nanos)}


class Step(Protocol):
    """One line of a waterfall: milliseconds from arrival; kind own, wait, stream, failed, count."""

    @property
    def name(self) -> str: ...
    @property
    def at_ms(self) -> float: ...
    @property
    def took_ms(self) -> float: ...
    @property
    def kind(self) -> str: ...


MOST_TICKS = 8
AXIS_SPARE = 1.06  # the last bar ends before the figures begin


def _rounds(firsts: tuple[int, ...]) -> Iterator[int]:
    """Round numbers in order: for (1, 2, 5), 1, 2, 5, 10, 20 and so on."""
    tens = 1
    while True:
        yield from (first * tens for first in firsts)
        tens *= 10


def _tick_step_ms(span_ms: float) -> int:
    """The smallest of 1, 2, 5, 10 … that needs few lines; a second wherever seconds fit."""
    if MS_PER_SECOND <= span_ms < MOST_TICKS * MS_PER_SECOND:
        return MS_PER_SECOND
    return next(step for step in _rounds((1, 2, 5)) if span_ms / step < MOST_TICKS)


def _tick_label(at_ms: int, step_ms: int) -> str:
    if not at_ms:
        return "0"
    if step_ms < MS_PER_SECOND:
        return f"{at_ms} ms"
    return f"{at_ms // MS_PER_SECOND:,} s"


def _ticks(span_ms: float) -> list[tuple[str, str]]:
    step_ms = _tick_step_ms(span_ms)
    marks = range(0, int(span_ms) + 1, step_ms)
    return [(_percent(at_ms, span_ms), _tick_label(at_ms, step_ms)) for at_ms in marks]


@register.inclusion_tag("components/waterfall.html")
def waterfall(steps: Sequence[Step], first_token_ms: float | None = None) -> dict[str, object]:
    """One linear axis; the dashed line of the first token crosses the bars that touch it."""
    span_ms = max((step.at_ms + step.took_ms for step in steps), default=0) * AXIS_SPARE or 1
    return {
        "ticks": _ticks(span_ms),
        "first_token": None if first_token_ms is None else _percent(first_token_ms, span_ms),
        "rows": [
            {
                "step": step,
                "start": _percent(step.at_ms, span_ms),
                "width": _percent(step.took_ms, span_ms),
                "touches": _touches(step, first_token_ms),
            }
            for step in steps
        ],
    }


TOUCH_MS = 1.0  # figures are printed to a tenth, kept to a microsecond


def _touches(step: Step, moment_ms: float | None) -> bool:
    if moment_ms is None or step.kind not in {"wait", "stream"}:
        return False
    return step.at_ms - TOUCH_MS <= moment_ms <= step.at_ms + step.took_ms + TOUCH_MS


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a stacked chart: a label under it or none, and (class, value) from below."""

    label: str
    title: str
    parts: tuple[tuple[str, int], ...]


CHART_HEIGHT_PX = 96
BAR_SHARE = 0.8


def _top(bars: Sequence[Bar]) -> int:
    highest = max((sum(value for _, value in bar.parts) for bar in bars), default=0)
    return next(top for top in _rounds((2, 4, 6, 8, 10, 12, 16)) if top >= highest)


def _segments(bar: Bar, top: int) -> Iterable[tuple[str, str, str]]:
    """(class, y, height) in per cent of the plot, the first part at the bottom."""
    below = 0
    for name, value in bar.parts:
        below += value
        if value:
            yield name, _percent(top - below, top), _percent(value, top)


@register.inclusion_tag("components/bars.html")
def bars(columns: Sequence[Bar], description: str) -> dict[str, object]:
    """Stacked bars over time, equally wide; the classes are c1 to c4, info, bad."""
    top = _top(columns)
    step = 100 / max(len(columns), 1)
    return {
        "description": description,
        "height": CHART_HEIGHT_PX,
        "levels": [(_percent(top - level, top), f"{level:,}") for level in (0, top // 2, top)],
        "columns": [
            {
                "bar": bar,
                "x": f"{index * step:.3f}%",
                "width": f"{step * BAR_SHARE:.3f}%",
                "segments": list(_segments(bar, top)),
            }
            for index, bar in enumerate(columns)
        ],
    }
