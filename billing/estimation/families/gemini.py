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

from billing.estimation.family import Errors, Family, other_media_tokens
from billing.estimation.reading import (
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
_ESCAPE = "<|im_end|>"
"""Stands for Gemma's control token around a text: one token here too."""


def _words(value: Any) -> str:
    """The names and texts of a JSON value, without its punctuation."""
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_words(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_words, value))
    return str(value)


def _declared(value: Any) -> str:
    """A value as Gemma's published template for functions writes it."""
    if isinstance(value, str):
        return f"{_ESCAPE}{value}{_ESCAPE}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_declared(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_declared, value)) + "]"
    return compact_json(value)


def _declaration(function: Mapping[str, Any]) -> str:
    parameters = function.get("parameters")
    fields = parameters.get("properties") if isinstance(parameters, Mapping) else None
    shown = f",parameters:{_declared(parameters)}" if fields else ""
    name = text_of(function.get("name"))
    description = _declared(text_of(function.get("description")))
    return f"{_ESCAPE}declaration:{name}{{description:{description}{shown}}}{_ESCAPE}"


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
    return _DECLARED_CALL + tally(f"{_ESCAPE}call:{call.name}{_declared(arguments)}{_ESCAPE}")


def _tools_tokens(prompt: Prompt, tally: Tally) -> int:
    if _OLD.search(prompt.model):
        named = " ".join(f"{t.get('name')} {t.get('description', '')}" for t in prompt.tools)
        return _OLD_TOOLS + tally(named)
    if _PYTHON_CALLS.search(prompt.model):
        return tally(compact_json(prompt.tools))
    return sum(_TOOL + tally(_declaration(function)) for function in prompt.tools)


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = 0 if _OLD.search(prompt.model) or prompt.tools else _FRAME
    for message in prompt.messages:
        tokens += tally(message.text) + _IMAGE_TOKENS * len(message.images)
        tokens += sum(_call_tokens(prompt.model, call, tally) for call in message.tool_calls)
    if prompt.tools:
        tokens += _tools_tokens(prompt, tally)
    return tokens + other_media_tokens(prompt.messages)


def _completion(choice: Choice, prompt: Prompt, tally: Tally) -> int:
    calls = sum(_call_tokens(prompt.model, call, tally) for call in choice.tool_calls)
    return tally(choice.text) + tally(choice.reasoning) + calls


GEMINI = Family(
    "gemini",
    "Gemini",
    "qwen3.5",
    _prompt,
    _completion,
    Errors(plain=Decimal("0.02"), tools=Decimal("0.30"), completion=Decimal("0.02")),
    own_vocabulary=False,
    hides_reasoning=lambda prompt: not _OLD.search(prompt.model),
)
