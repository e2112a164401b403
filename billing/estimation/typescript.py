"""Tools as the TypeScript that OpenAI's models see.

Rules of indent and comment deduced by hmarr/openai-chat-tokens (src/functions.ts) from the API's
own counts, and extended to the JSON Schema that tools use today.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from billing.estimation.reading import compact_json, text_of

MAX_DEPTH = 32
"""Schemas nested deeper are `any`."""
_MAX_COMMENT_INDENT = 2

_PLAIN_TYPES = {"boolean": "boolean", "null": "null"}
_ENUM_TYPES = {"string": "string", "number": "number", "integer": "number"}


def functions_text(functions: Iterable[Mapping[str, Any]]) -> str:
    """The `namespace functions` block of a request's tools."""
    lines = ["namespace functions {", ""]
    for function in functions:
        lines.extend(_function_lines(function))
    lines.append("} // namespace functions")
    return "\n".join(lines)


def _function_lines(function: Mapping[str, Any]) -> list[str]:
    name = text_of(function.get("name"))
    description = text_of(function.get("description"))
    lines = [f"// {description}"] if description else []
    parameters = _mapping(function.get("parameters"))
    if _mapping(parameters.get("properties")):
        definitions = _mapping(parameters.get("$defs"))
        lines.append(f"type {name} = (_: {{")
        lines.append(_properties(parameters, 0, definitions))
        lines.append("}) => any;")
    else:
        lines.append(f"type {name} = () => any;")
    return [*lines, ""]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _properties(schema: Mapping[str, Any], indent: int, definitions: Mapping[str, Any]) -> str:
    required = schema.get("required")
    required = required if isinstance(required, list | tuple) else ()
    lines: list[str] = []
    for name, value in _mapping(schema.get("properties")).items():
        field = _mapping(value)
        description = text_of(field.get("description"))
        if description and indent < _MAX_COMMENT_INDENT:
            lines.append(f"// {description}")
        mark = "" if name in required else "?"
        default = f", // default: {text_of(field['default'])}" if "default" in field else ","
        lines.append(f"{name}{mark}: {_type(field, indent, definitions)}{default}")
    return "\n".join(" " * indent + line for line in lines)


def _type(schema: Mapping[str, Any], indent: int, definitions: Mapping[str, Any]) -> str:
    if indent > 2 * MAX_DEPTH:
        return "any"
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema = _mapping(definitions.get(reference.rsplit("/", 1)[-1])) or schema
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list | tuple):
            kinds = (_type(_mapping(option), indent + 2, definitions) for option in options)
            return " | ".join(kinds)
    kind = schema.get("type")
    if isinstance(kind, list | tuple):
        kinds = (_type({**schema, "type": one}, indent + 2, definitions) for one in kind)
        return " | ".join(kinds)
    return _simple_type(kind, schema, indent, definitions)


def _simple_type(
    kind: Any, schema: Mapping[str, Any], indent: int, definitions: Mapping[str, Any]
) -> str:
    if kind == "object":
        fields = _properties(schema, indent + 2, definitions)
        return f"{{\n{fields}\n}}"
    if kind == "array":
        items = schema.get("items")
        return f"{_type(_mapping(items), indent, definitions)}[]" if items else "any[]"
    options = schema.get("enum")
    if isinstance(options, list | tuple):
        return " | ".join(map(compact_json, options))
    if not isinstance(kind, str):
        return "any"
    return _PLAIN_TYPES.get(kind) or _ENUM_TYPES.get(kind) or "any"
