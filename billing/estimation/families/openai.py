"""OpenAI's models: the message arithmetic of its cookbook, tools as TypeScript, images as tiles.

Sources: openai-cookbook "How to count tokens with tiktoken"; hmarr/openai-chat-tokens for tools,
function_call and named messages; OpenAI's pages on images; the rest deduced from recorded usage.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from billing.estimation.family import EXACT, Errors, Family, other_media_tokens
from billing.estimation.images import Image, fit, tiles
from billing.estimation.reading import Choice, Message, Prompt, compact_json, text_of
from billing.estimation.text import Tally
from billing.estimation.typescript import functions_text

_PER_MESSAGE = 3
_ROLE = 1
_PER_NAME = 1
_REPLY = 3
_TOOLS = 9
_TOOLS_WITH_SYSTEM = -4
_CHOSEN_TOOL = 4
_FUNCTION_CALL = 3
_ONE_CALL = 4
_EACH_OF_MANY_CALLS = 11
_REASONER_TOOLS = 81
_REASONER_CALL = 9
_REASONER_ANSWER = 9


def _message_tokens(message: Message, tally: Tally) -> int:
    tokens = _PER_MESSAGE + _ROLE + tally(message.text)
    if message.name:
        tokens += _PER_NAME + tally(message.name)
    return tokens


def _calls_tokens(message: Message, tally: Tally, *, reasoner: bool) -> int:
    calls = message.tool_calls
    if not calls:
        return 0
    text = sum(tally(call.name) + tally(call.arguments) for call in calls)
    if reasoner:
        return text + _REASONER_CALL * len(calls)
    return text + (_ONE_CALL if len(calls) == 1 else _EACH_OF_MANY_CALLS * len(calls))


def _tools_tokens(prompt: Prompt, tally: Tally) -> int:
    if not prompt.tools:
        return 0
    tokens = _TOOLS + tally(functions_text(prompt.tools))
    if any(message.role in {"system", "developer"} for message in prompt.messages):
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


def _schema_tokens(prompt: Prompt, tally: Tally) -> int:
    return tally(compact_json(prompt.schema)) if prompt.schema is not None else 0


def _prompt(reasoner: bool, prompt: Prompt, tally: Tally) -> int:
    tokens = _REPLY
    for message in prompt.messages:
        tokens += _message_tokens(message, tally)
        tokens += _calls_tokens(message, tally, reasoner=reasoner)
        tokens += sum(image_tokens(image, prompt.model) for image in message.images)
    tokens += _tools_tokens(prompt, tally) + _schema_tokens(prompt, tally)
    if reasoner:
        tokens += (_REASONER_TOOLS if prompt.tools else 0) - 1
    return tokens + other_media_tokens(prompt.messages)


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


def image_tokens(image: Image, model: str) -> int:
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


def _completion(end: int, choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    calls = choice.tool_calls
    tokens = tally(choice.text) + tally(choice.reasoning) + end
    for call in calls:
        tokens += tally(call.name) + tally(call.arguments) + _FUNCTION_CALL
    return tokens


_CHAT_ERRORS = Errors(plain=EXACT, tools=Decimal("0.02"), completion=EXACT)
_REASONER_ERRORS = Errors(plain=EXACT, tools=Decimal("0.02"), completion=Decimal("0.01"))

OPENAI_CL100K = Family(
    "openai-cl100k",
    "OpenAI GPT-3.5 and GPT-4",
    "cl100k_base",
    partial(_prompt, False),
    partial(_completion, 0),
    _CHAT_ERRORS,
    public_template=True,
)
OPENAI_O200K = Family(
    "openai-o200k",
    "OpenAI GPT-4o, 4.1 and 4.5",
    "o200k_base",
    partial(_prompt, False),
    partial(_completion, 0),
    _CHAT_ERRORS,
    public_template=True,
)
OPENAI_REASONER = Family(
    "openai-reasoning",
    "OpenAI o-series and GPT-5",
    "o200k_base",
    partial(_prompt, True),
    partial(_completion, _REASONER_ANSWER),
    _REASONER_ERRORS,
    public_template=True,
    hides_reasoning=lambda _model: True,
)
