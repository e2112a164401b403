from decimal import Decimal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog.diff import price_text, seconds_text
from gateway.catalog.nodes import (
    Reading,
    Wrong,
    price_nanos,
    seconds_ms,
    with_environment,
    without_environment,
)


def node_of(text: str) -> yaml.Node:
    return yaml.compose(text, Loader=yaml.SafeLoader)


@given(st.integers(0, 10**18))
def test_price_written_and_read_again_is_the_same(nanos):
    assert price_nanos(node_of(price_text(nanos)), Reading({})) == nanos


@given(st.integers(1, 86_400_000))
def test_seconds_written_and_read_again_are_the_same(ms):
    assert seconds_ms(node_of(seconds_text(ms)), Reading({})) == ms


@given(st.text("0123456789.-+eE_:xX '\"", max_size=30))
def test_price_is_the_decimal_that_stands_there_or_a_mistake(text):
    try:
        nanos = price_nanos(yaml.ScalarNode("tag:yaml.org,2002:str", text), Reading({}))
    except Wrong:
        return
    assert Decimal(text) * 10**9 == nanos


@given(st.text("${}AB_1"))
def test_reference_marks_survive_an_export(text):
    assert with_environment(without_environment(text), {}) == text


def test_reference_is_never_shown_with_its_value():
    with pytest.raises(Wrong) as wrong:
        with_environment("${A}${B}", {"A": "hunter2"})
    assert str(wrong.value) == "refers to ${B}, which the environment does not have."
