"""OpenAI's models: the message arithmetic of its cookbook, tools as TypeScript, images as tiles.

Sources: openai-cookbook "How to count tokens with tiktoken"; hmarr/openai-chat-tokens for tools,
function_call and named messages; OpenAI's pages on images; the rest deduced from recorded usage.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from billing.estimation.family import EXACT, Errors, Family, media_tokens
from billing.estimation.images import Image, fit, tiles
from billing.estimation.printing import printed_tools
from billing.estimation.reading import Choice, Message, Prompt, compact_json, text_of
from billing.estimation.text import Tally
from billing.estimation.typescript import functions_text

_PER_MESSAGE = 3
_ROLE = 1
_PER_NAME = 1
_REPLY = 3
_FUNCTION_ROLE = -2
_LEGACY_CALL = 3
_TOOLS_WITH_SYSTEM = -4
_CHOSEN_TOOL = 4
_SYSTEM_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class _Frames:
    """What differs between the generations, deduced from recorded usage."""

    tools: int
    call: int
    parallel_call: int
    base: int = 0
    tools_prompt: int = 0


_CL100K_FRAMES = _Frames(tools=9, call=0, parallel_call=11)
_O200K_FRAMES = _Frames(tools=8, call=1, parallel_call=11)
_REASONER_FRAMES = _Frames(tools=9, call=6, parallel_call=9, base=-1, tools_prompt=81)


def _message_tokens(message: Message, text: str, tally: Tally) -> int:
    tokens = _PER_MESSAGE + _ROLE + tally(text)
    if message.name:
        tokens += _PER_NAME + tally(message.name)
    if message.role == "function":
        tokens += _FUNCTION_ROLE
    return tokens


def _calls_tokens(frames: _Frames, message: Message, tally: Tally) -> int:
    """Calls of a turn, with what their names add to the turns of their results."""
    calls = message.tool_calls
    arguments = sum(tally(call.arguments) for call in calls)
    if len(calls) > 1:
        names = sum(tally(call.name) for call in calls)
        return arguments + names + frames.parallel_call * len(calls)
    if not calls:
        return 0
    (call,) = calls
    if message.legacy_call:
        return arguments + tally(call.name) + _LEGACY_CALL
    to, of = f" to=functions.{call.name}", f"functions.{call.name}"
    return arguments + tally(to) + tally(of) + frames.call


def printed_functions(prompt: Prompt) -> str:
    return functions_text(prompt.tools)


def _tools_tokens(frames: _Frames, prompt: Prompt, tally: Tally) -> int:
    if not prompt.tools:
        return 0
    tokens = frames.tools + frames.tools_prompt + tally(printed_tools(prompt, printed_functions))
    if any(message.role in _SYSTEM_ROLES for message in prompt.messages):
        tokens += _TOOLS_WITH_SYSTEM
    return tokens + _chosen_tool_tokens(prompt.tool_choice, tally)


def _chosen_tool_tokens(choice: Any, tally: Tally) -> int:
    if choice == "none":
        return 1
    if not isinstance(choice, Mapping):
        return 0
    function = choice.get("function")
    name = (function if isinstance(function, Mapping) else choice).get("name")
    return _CHOSEN_TOOL + tally(text_of(name))


_HEADER_KEYS = frozenset({"title", "description", "additionalProperties"})


def _schema_body(schema: Mapping[str, Any]) -> tuple[str, str]:
    """What a schema is printed as, and its description.

    A strict one is printed without what only validators read.
    """
    value = schema.get("schema")
    holder = value if isinstance(value, Mapping) else {}
    strict = schema.get("strict") is True
    dropped = _HEADER_KEYS if strict else frozenset()
    body = compact_json({key: holder[key] for key in holder if key not in dropped})
    description = schema.get("description") or (holder.get("description") if strict else None)
    return body, text_of(description)


def schema_text(schema: Mapping[str, Any]) -> str:
    """A response format under its heading."""
    body, description = _schema_body(schema)
    comment = f"// {description}\n" if description else ""
    return f"# Response Formats\n\n## {text_of(schema.get('name'))}\n\n{comment}{body}"


def _schema_tokens(prompt: Prompt, tally: Tally) -> int:
    """Beside tools a response format has no heading of its own."""
    if prompt.schema is None:
        return 0
    if prompt.tools:
        return tally(_schema_body(prompt.schema)[0])
    return tally(schema_text(prompt.schema))


def _prompt(frames: _Frames, prompt: Prompt, tally: Tally) -> int:
    tokens = _REPLY + frames.base
    padded = not prompt.tools
    for message in prompt.messages:
        text = message.text
        if not padded and message.role in _SYSTEM_ROLES:
            text, padded = text + "\n", True
        tokens += _message_tokens(message, text, tally)
        tokens += _calls_tokens(frames, message, tally)
    tokens += _tools_tokens(frames, prompt, tally) + _schema_tokens(prompt, tally)
    return tokens + media_tokens(prompt.messages, partial(image_tokens, prompt.model))


# --- images -------------------------------------------------------------------------------------

_TILE_PIXELS = 512
_TILE_LONG_SIDE = 2_048
_TILE_SHORT_SIDE = 768
_PATCH_PIXELS = 32
_PATCH_LONG_SIDE = 2_048
_MAX_PATCHES = 1_536

_PATCH_RATES = (
    (re.compile(r"4\.1-mini"), 1_620),
    (re.compile(r"4\.1-nano"), 2_460),
    (re.compile(r"o4-mini"), 1_720),
    (re.compile(r"gpt-5(\.\d+)?-(mini|nano)|gpt-5\.[2-9]"), 1_200),
)
"""Thousandths of a token a patch of 32 pixels."""
_TILE_RATES = (
    (re.compile(r"4o-mini"), (2_833, 5_667)),
    (re.compile(r"gpt-5"), (70, 140)),
    (re.compile(r"\bo[1-9]"), (75, 150)),
    (re.compile(r""), (85, 170)),
)
"""Tokens of an image, and of each of its tiles."""


def image_tokens(model: str, image: Image) -> int:
    """Tokens of an image for a model; of unknown size, the most an image can cost."""
    for pattern, per_mille in _PATCH_RATES:
        if pattern.search(model):
            return -(-_patches(image) * per_mille // 1000)
    base, each = next(rate for pattern, rate in _TILE_RATES if pattern.search(model))
    return base if image.low_detail else base + each * _tiles(image)


def _patches(image: Image) -> int:
    if not image.width:
        return _MAX_PATCHES
    width, height = fit(image.width, image.height, _PATCH_LONG_SIDE)
    return min(_MAX_PATCHES, tiles(width, height, _PATCH_PIXELS))


def _tiles(image: Image) -> int:
    if not image.width:
        return tiles(_TILE_LONG_SIDE, _TILE_SHORT_SIDE, _TILE_PIXELS)
    width, height = fit(image.width, image.height, _TILE_LONG_SIDE)
    short = min(width, height)
    if short > _TILE_SHORT_SIDE:
        width, height = width * _TILE_SHORT_SIDE // short, height * _TILE_SHORT_SIDE // short
    return tiles(width, height, _TILE_PIXELS)


# --- answers and rows ---------------------------------------------------------------------------

_ANSWER_CALL = 4
_AFTER_TOOLS = 1
_REASONED_END = 9
_UNREASONED_END = 3
_SMALL_O_END = 12
_SMALL_O = re.compile(r"\bo[13]-mini")
_REASONS_ON_REQUEST = re.compile(r"gpt-5\.\d")


def _calls_answer(choice: Choice, tally: Tally) -> int:
    calls = choice.tool_calls
    return sum(
        tally(f" to=functions.{call.name}") + tally(call.arguments) + _ANSWER_CALL for call in calls
    )


def _completion(choice: Choice, prompt: Prompt, tally: Tally) -> int:
    end = _AFTER_TOOLS if prompt.tools and choice.text else 0
    return tally(choice.text) + tally(choice.reasoning) + _calls_answer(choice, tally) + end


def _reasons(prompt: Prompt) -> bool:
    """From GPT-5.1 on, models reason only when asked to."""
    if _REASONS_ON_REQUEST.search(prompt.model):
        return prompt.effort not in {"", "none"}
    return True


def _reasoner_completion(choice: Choice, prompt: Prompt, tally: Tally) -> int:
    """The visible part, with what closes the hidden one."""
    if _SMALL_O.search(prompt.model):
        end = _SMALL_O_END
    else:
        end = _REASONED_END if _reasons(prompt) else _UNREASONED_END
    return tally(choice.text) + tally(choice.reasoning) + _calls_answer(choice, tally) + end


_CHAT_ERRORS = Errors(plain=EXACT, tools=Decimal("0.02"), completion=EXACT)
_REASONER_ERRORS = Errors(plain=EXACT, tools=Decimal("0.02"), completion=Decimal("0.01"))

OPENAI_CL100K = Family(
    "openai-cl100k",
    "OpenAI GPT-3.5 and GPT-4",
    "cl100k_base",
    partial(_prompt, _CL100K_FRAMES),
    _completion,
    _CHAT_ERRORS,
    public_template=True,
)
OPENAI_O200K = Family(
    "openai-o200k",
    "OpenAI GPT-4o, 4.1 and 4.5",
    "o200k_base",
    partial(_prompt, _O200K_FRAMES),
    _completion,
    _CHAT_ERRORS,
    public_template=True,
)
OPENAI_REASONER = Family(
    "openai-reasoning",
    "OpenAI o-series and GPT-5",
    "o200k_base",
    partial(_prompt, _REASONER_FRAMES),
    _reasoner_completion,
    _REASONER_ERRORS,
    public_template=True,
    hides_reasoning=_reasons,
)
