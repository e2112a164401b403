"""The smallest value that fits a JSON schema, as a vendor's structured answer would."""

from typing import Any, Final

MAX_DEPTH: Final = 16

Schema = dict[str, Any]

BY_TYPE: Final[dict[str, Any]] = {
    "string": "farthing",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "null": None,
}


def example(schema: Any, root: Schema | None = None, depth: int = 0) -> Any:
    """Return a value that fits, for the schemas that structured answers are asked with.

    None beyond `MAX_DEPTH`, which a schema that refers to itself may reach.
    """
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return None
    root = schema if root is None else root
    if isinstance(target := _target(schema, root), dict):
        return example(target, root, depth + 1)
    return _value(schema, root, depth + 1)


def _value(schema: Schema, root: Schema, depth: int) -> Any:
    if "const" in schema:
        return schema["const"]
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[0]
    match _type(schema):
        case "object":
            properties = schema.get("properties")
            members = properties.items() if isinstance(properties, dict) else ()
            return {name: example(value, root, depth) for name, value in members}
        case "array":
            return [example(schema.get("items"), root, depth)]
        case name:
            return BY_TYPE.get(name)


def _target(schema: Schema, root: Schema) -> Any:
    """Return the schema that this one stands for: what it refers to, or its first alternative."""
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(alternatives := schema.get(name), list) and alternatives:
            return alternatives[0]
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return None
    found: Any = root
    for step in reference.removeprefix("#").split("/"):
        if step:
            found = found.get(step) if isinstance(found, dict) else None
    return found


def _type(schema: Schema) -> str:
    kinds = schema.get("type")
    if isinstance(kinds, list) and kinds:
        kinds = kinds[0]
    if isinstance(kinds, str):
        return kinds
    return "object" if "properties" in schema else ""
