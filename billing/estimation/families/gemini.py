"""Gemini: no frame to speak of; Qwen 3.5's vocabulary stands in for Gemma's.

Both have a quarter of a million tokens and take digits one by one: half of the recorded answers
count exactly. Tools are far from exact: Gemini's own rendering of them is not public, and changed
between versions 2.0, 2.5 and 3. Reasoning is hidden, beside the answer.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from billing.estimation.family import Errors, Family, media_tokens
from billing.estimation.printing import printed_tools, tools_json
from billing.estimation.reading import (
    MAX_NESTING,
    Choice,
    Prompt,
    ToolCall,
    compact_json,
    spaced_json,
    text_of,
)
from billing.estimation.text import Tally

_IMAGE_TOKENS = 258
_FRAME = 1
_OLD = re.compile(r"gemini-?(1|2\.0)")
_PYTHON_CALLS = re.compile(r"gemini-?2\.5")
_OLD_TOOLS = 5
_TOOL = 5
_CALL = 1
_PYTHON_CALL = 5
_DECLARED_CALL = 4
_ESCAPE = "<escape>"
"""Gemma's control token around a text, and here for those around a declaration or call."""


def _words(value: Any, depth: int = 0) -> str:
    """The names and texts of a JSON value, without its punctuation."""
    if depth > MAX_NESTING:
        return compact_json(value)
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_words(item, depth + 1)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(_words(item, depth + 1) for item in value)
    return str(value)


def _declared(value: Any, depth: int = 0) -> str:
    """A value as Gemma's published template for functions writes it."""
    if isinstance(value, str):
        return f"{_ESCAPE}{value}{_ESCAPE}"
    if depth > MAX_NESTING or not isinstance(value, Mapping | list | tuple):
        return compact_json(value)
    if isinstance(value, Mapping):
        fields = (f"{key}:{_declared(item, depth + 1)}" for key, item in value.items())
        return f"{{{','.join(fields)}}}"
    return f"[{','.join(_declared(item, depth + 1) for item in value)}]"


def _declaration(function: Mapping[str, Any]) -> str:
    parameters = function.get("parameters")
    fields = parameters.get("properties") if isinstance(parameters, Mapping) else None
    shown = f",parameters:{_declared(parameters)}" if fields else ""
    name = text_of(function.get("name"))
    description = _declared(text_of(function.get("description")))
    return f"{_ESCAPE}declaration:{name}{{description:{description}{shown}}}{_ESCAPE}"


def _declarations(prompt: Prompt) -> str:
    return "".join(map(_declaration, prompt.tools))


def _names(prompt: Prompt) -> str:
    return " ".join(f"{tool.get('name')} {tool.get('description', '')}" for tool in prompt.tools)


def _escaped_tokens(text: str, tally: Tally) -> int:
    """Control tokens are one each, and no other token reaches over them."""
    parts = text.split(_ESCAPE)
    return len(parts) - 1 + sum(map(tally, parts))


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return call.arguments


def _call_tokens(model: str, call: ToolCall, tally: Tally) -> int:
    arguments = _arguments(call)
    if _OLD.search(model):
        return _CALL + tally(call.name) + tally(_words(arguments))
    if _PYTHON_CALLS.search(model):
        pairs = arguments.items() if isinstance(arguments, Mapping) else ()
        inner = ", ".join(f"{key}={spaced_json(value)}" for key, value in pairs)
        return _PYTHON_CALL + tally(f"print(default_api.{call.name}({inner}))")
    call_text = f"{_ESCAPE}call:{call.name}{_declared(arguments)}{_ESCAPE}"
    return _DECLARED_CALL + _escaped_tokens(call_text, tally)


def _tools_tokens(prompt: Prompt, tally: Tally) -> int:
    if _OLD.search(prompt.model):
        return _OLD_TOOLS + tally(printed_tools(prompt, _names))
    if _PYTHON_CALLS.search(prompt.model):
        return tally(printed_tools(prompt, tools_json))
    declarations = printed_tools(prompt, _declarations)
    return _TOOL * len(prompt.tools) + _escaped_tokens(declarations, tally)


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = 0 if _OLD.search(prompt.model) or prompt.tools else _FRAME
    for message in prompt.messages:
        tokens += tally(message.text)
        tokens += sum(_call_tokens(prompt.model, call, tally) for call in message.tool_calls)
    if prompt.tools:
        tokens += _tools_tokens(prompt, tally)
    return tokens + media_tokens(prompt.messages, lambda _image: _IMAGE_TOKENS)


def _completion(choice: Choice, prompt: Prompt, tally: Tally) -> int:
    calls = sum(_call_tokens(prompt.model, call, tally) for call in choice.tool_calls)
    return tally(choice.text) + tally(choice.reasoning) + calls


GEMINI = Family(
    "gemini",
    "Gemini",
    "qwen3.5-text",
    _prompt,
    _completion,
    Errors(plain=Decimal("0.02"), tools=Decimal("0.30"), completion=Decimal("0.02")),
    own_vocabulary=False,
    hides_reasoning=lambda prompt: not _OLD.search(prompt.model),
)
