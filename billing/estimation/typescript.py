"""Tools as the TypeScript that OpenAI's models see.

Rules of indent and comment deduced by hmarr/openai-chat-tokens (src/functions.ts) from the API's
own counts, and extended to the JSON Schema that tools use today.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from billing.estimation.reading import compact_json, text_of

MAX_DEPTH = 32
"""Schemas nested deeper are `any`."""
MAX_REFERRED_CHARS = 1_000_000
"""JSON of all definitions that references of a request put in; the rest are `any`. Without it
definitions that refer to each other twice would grow without end."""
_MAX_COMMENT_INDENT = 2

_TYPES = {
    "boolean": "boolean",
    "integer": "number",
    "null": "null",
    "number": "number",
    "string": "string",
}


def functions_text(functions: Iterable[Mapping[str, Any]]) -> str:
    """The `namespace functions` block of a request's tools."""
    printer = _Printer()
    lines = ["namespace functions {", ""]
    for function in functions:
        lines.extend(printer.function(function))
    lines.append("} // namespace functions")
    return "\n".join(lines)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


class _Printer:
    """Prints the functions of one request, within its bounds."""

    def __init__(self) -> None:
        self._definitions: Mapping[str, Any] = {}
        self._referred_chars_left = MAX_REFERRED_CHARS

    def function(self, function: Mapping[str, Any]) -> list[str]:
        name = text_of(function.get("name"))
        description = text_of(function.get("description"))
        lines = [f"// {description}"] if description else []
        parameters = _mapping(function.get("parameters"))
        if not _mapping(parameters.get("properties")):
            return [*lines, f"type {name} = () => any;", ""]
        self._definitions = _mapping(parameters.get("$defs"))
        fields = self._fields(parameters, 0)
        return [*lines, f"type {name} = (_: {{", fields, "}) => any;", ""]

    def _fields(self, schema: Mapping[str, Any], indent: int) -> str:
        required = schema.get("required")
        required = required if isinstance(required, list | tuple) else ()
        lines: list[str] = []
        for name, value in _mapping(schema.get("properties")).items():
            field = _mapping(value)
            description = text_of(field.get("description"))
            if description and indent < _MAX_COMMENT_INDENT:
                lines.append(f"// {description}")
            mark = "" if name in required else "?"
            default = f" // default: {text_of(field['default'])}" if "default" in field else ""
            lines.append(f"{name}{mark}: {self._type(field, indent)},{default}")
        return "\n".join(" " * indent + line for line in lines)

    def _type(self, schema: Mapping[str, Any], indent: int) -> str:
        if indent > 2 * MAX_DEPTH:
            return "any"
        schema = self._followed(schema)
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            if isinstance(options, list | tuple):
                return " | ".join(self._type(_mapping(o), indent + 2) for o in options)
        kind = schema.get("type")
        if isinstance(kind, list | tuple):
            return " | ".join(self._type({**schema, "type": one}, indent + 2) for one in kind)
        return self._simple_type(kind, schema, indent)

    def _followed(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        definition = _mapping(self._definitions.get(reference.rsplit("/", 1)[-1]))
        self._referred_chars_left -= len(compact_json(definition))
        return definition if self._referred_chars_left >= 0 else {}

    def _simple_type(self, kind: Any, schema: Mapping[str, Any], indent: int) -> str:
        if kind == "object":
            return f"{{\n{self._fields(schema, indent + 2)}\n}}"
        if kind == "array":
            items = _mapping(schema.get("items"))
            return f"{self._type(items, indent)}[]" if items else "any[]"
        options = schema.get("enum")
        if isinstance(options, list | tuple):
            return " | ".join(map(compact_json, options))
        return _TYPES.get(kind, "any") if isinstance(kind, str) else "any"
