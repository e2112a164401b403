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
from billing.estimation.reading import Choice, Prompt, ToolCall, compact_json
from billing.estimation.text import Tally

_IMAGE_TOKENS = 258
_OLD = re.compile(r"gemini-?(1|2\.0)")
_NEW_FRAME = 1
_CALL = 1


def _words(value: Any) -> str:
    """The names and texts of a JSON value, without its punctuation."""
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_words(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_words, value))
    return str(value)


def _call_tokens(call: ToolCall, tally: Tally) -> int:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return _CALL + tally(call.name) + tally(_words(arguments))


def _tools_tokens(prompt: Prompt, tally: Tally) -> int:
    return tally(compact_json(prompt.tools)) if prompt.tools else 0


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = 0 if _OLD.search(prompt.model) else _NEW_FRAME
    for message in prompt.messages:
        tokens += tally(message.text) + _IMAGE_TOKENS * len(message.images)
        tokens += sum(_call_tokens(call, tally) for call in message.tool_calls)
    return tokens + _tools_tokens(prompt, tally) + other_media_tokens(prompt.messages)


def _completion(choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    calls = sum(_call_tokens(call, tally) for call in choice.tool_calls)
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
