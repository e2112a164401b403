import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.benchecho.examples import example

CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "is_open": {"type": "boolean"},
        "nothing": {"type": "null"},
        "colour": {"enum": ["red", "blue"]},
        "kind": {"const": "town"},
        "streets": {"type": "array", "items": {"$ref": "#/$defs/street"}},
        "mayor": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "size": {"type": ["integer", "null"]},
    },
    "$defs": {"street": {"properties": {"name": {"type": "string"}}}},
}


def test_every_member_of_a_schema_gets_a_value_that_fits():
    assert example(CITY) == {
        "city": "farthing",
        "count": 1,
        "share": 1.5,
        "is_open": True,
        "nothing": None,
        "colour": "red",
        "kind": "town",
        "streets": [{"name": "farthing"}],
        "mayor": "farthing",
        "size": 1,
    }


def test_a_schema_that_refers_to_itself_ends():
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    text = str(example(node))
    assert text.count("next") == 9
    assert example({"$ref": "#"}) is None


@pytest.mark.parametrize(
    "schema",
    [None, 5, [], {}, {"type": 5}, {"type": []}, {"$ref": 5}, {"$ref": "#/a/b"}, {"enum": []}],
)
def test_what_says_nothing_gets_nothing(schema):
    assert example(schema) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "anyOf", "$ref", "enum", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_schema_is_answered(schema):
    example(schema)
