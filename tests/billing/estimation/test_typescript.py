from hypothesis import given, settings

from billing.estimation.typescript import MAX_DEPTH, functions_text
from tests.billing.estimation.texts import json_value


def function(properties: dict, **schema: object) -> dict:
    return {"name": "f", "parameters": {"type": "object", "properties": properties, **schema}}


def inner(function_: dict) -> str:
    text = functions_text([function_])
    return text.split("(_: {\n", 1)[1].split("\n}) => any;", 1)[0]


def test_a_function_without_parameters() -> None:
    expected = "namespace functions {\n\n// Do it.\ntype f = () => any;\n\n} // namespace functions"
    assert functions_text([{"name": "f", "description": "Do it."}]) == expected


def test_required_and_optional_fields() -> None:
    fields = {"a": {"type": "string"}, "b": {"type": "integer", "description": "How many."}}
    assert inner(function(fields, required=["a"])) == "a: string,\n// How many.\nb?: number,"


def test_nested_fields_are_indented_and_lose_their_comments() -> None:
    nested = {"type": "object", "properties": {"x": {"type": "boolean", "description": "No."}}}
    assert inner(function({"o": nested})) == "o?: {\n  x?: boolean,\n},"


def test_types() -> None:
    fields = {
        "choice": {"type": "string", "enum": ["a", "b"]},
        "list": {"type": "array", "items": {"type": "number"}},
        "any_list": {"type": "array"},
        "nothing": {"type": "null"},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "both": {"type": ["string", "null"]},
        "unknown": {},
    }
    assert inner(function(fields)) == (
        'choice?: "a" | "b",\nlist?: number[],\nany_list?: any[],\nnothing?: null,\n'
        "either?: string | null,\nboth?: string | null,\nunknown?: any,"
    )


def test_a_reference_is_followed() -> None:
    definitions = {"City": {"type": "string", "enum": ["Paris"]}}
    fields = {"city": {"$ref": "#/$defs/City"}}
    assert inner(function(fields, **{"$defs": definitions})) == 'city?: "Paris",'


def test_a_schema_that_refers_to_itself_ends() -> None:
    definitions = {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}
    text = functions_text([function({"n": {"$ref": "#/$defs/Node"}}, **{"$defs": definitions})])
    assert text.count("next?:") == MAX_DEPTH + 1


def test_a_schema_that_branches_into_itself_ends() -> None:
    node = {"anyOf": [{"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/Node"}]}
    text = functions_text([function({"n": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": node}})])
    assert len(text) < 3_000_000


def test_a_long_definition_is_not_repeated_without_end() -> None:
    long = {"type": "string", "enum": ["x" * 100_000]}
    fields = {f"f{number}": {"$ref": "#/$defs/Long"} for number in range(1_000)}
    text = functions_text([function(fields, **{"$defs": {"Long": long}})])
    assert text.count("x" * 100_000) == 9
    assert len(text) < 1_100_000


@given(json_value)
@settings(max_examples=40)
def test_no_tool_raises(value: object) -> None:
    functions_text([{"name": value, "parameters": value, "description": value}])
    functions_text([function({"a": value}, required=value, **{"$defs": value})])
    functions_text([function(value)])
