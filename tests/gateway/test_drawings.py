"""The small server-made drawings: their sizes are attributes, their figures stand beside them."""

import re

import pytest
from django.template import Template
from django.template.context import Context

from gateway.templatetags import drawings
from gateway.templatetags.drawings import Bar
from tests.gateway.gallery import STEPS, Step


def rendered(tag: str, **context: object) -> str:
    return Template(f"{{% load drawings %}}{{% {tag} %}}").render(Context(context))


def widths(drawing: str, name: str) -> list[str]:
    return re.findall(rf'class="{name}"[^>]* width="([^"]+)"', drawing)


def test_a_meter_shows_used_before_on_hold():
    drawing = rendered("meter 71 100 9")
    assert widths(drawing, "used") == ["71.000%"]
    assert widths(drawing, "hatch") == ["80.000%"]
    assert "at-limit" not in drawing


@pytest.mark.parametrize("tag", ["meter 70 70", "meter 60 70 10", "meter 90 70", "meter 0 0"])
def test_a_meter_is_amber_when_used_and_held_fill_it_and_never_overflows(tag):
    drawing = rendered(tag)
    assert "at-limit" in drawing
    assert set(widths(drawing, "hatch")) <= {"100.000%", "0%"}


def test_a_hold_is_solid_up_to_the_charge():
    assert widths(rendered("hold_bar 987751 2231343"), "charged") == ["44.267%"]
    assert widths(rendered("hold_bar 0 0"), "charged") == ["0%"]


def test_a_waterfall_has_a_grid_line_a_second_on_one_linear_axis():
    drawing = rendered("waterfall steps 702.6", steps=STEPS)
    assert re.findall(r'dx="5" y="22">([^<]+)<', drawing) == [
        "0",
        "1 s",
        "2 s",
        "3 s",
        "4 s",
        "5 s",
    ]
    starts = re.findall(r'class="bar stream" x="([\d.]+)%" width="([\d.]+)%"', drawing)
    assert starts == [("12.265", "72.592")]


def test_the_first_token_crosses_only_the_bars_that_touch_it():
    drawing = rendered("waterfall steps 702.6", steps=STEPS)
    assert drawing.count('class="first"') == 2
    assert rendered("waterfall steps", steps=STEPS).count('class="first"') == 0


def test_every_bar_is_drawn_at_least_three_pixels_wide_and_has_its_figures():
    drawing = rendered("waterfall steps", steps=[Step("Settle", 0.0, 0.04, "own")])
    assert 'x="0.000%" width="3"/>' in drawing
    assert '<td class="num took">0.0</td>' in drawing


def test_a_waterfall_of_no_steps_is_an_empty_table():
    assert "<tbody>" in rendered("waterfall steps", steps=[])


@pytest.mark.parametrize(
    ("span_ms", "step_ms"),
    [(0.5, 1), (9, 2), (88, 20), (640, 100), (1000, 1000), (7999, 1000), (9000, 2000)],
)
def test_the_axis_has_few_round_lines(span_ms, step_ms):
    assert drawings._tick_step_ms(span_ms) == step_ms


def test_bars_stack_from_the_zero_line_and_leave_out_empty_parts():
    column = Bar("00:00", "00:00, 12 requests", (("c2", 9), ("info", 0), ("bad", 3)))
    drawing = rendered("bars columns 'Requests'", columns=[column])
    parts = re.findall(
        r'rect class="(c2|info|bad)"[^>]* y="([\d.]+)%"[^>]* height="([\d.]+)%"', drawing
    )
    assert parts == [("c2", "25.000", "75.000"), ("bad", "0.000", "25.000")]
    assert "<title>00:00, 12 requests</title>" in drawing


@pytest.mark.parametrize(("value", "top"), [(0, 2), (1, 2), (3, 4), (117, 120), (161, 200)])
def test_the_y_axis_ends_at_an_even_round_number(value, top):
    assert drawings._top([Bar("", "", (("c1", value),))]) == top
