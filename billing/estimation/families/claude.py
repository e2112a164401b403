"""Claude before and from 4.7: frames and factors deduced from recorded usage.

No vocabulary is public. Before 4.7 Qwen 3.5's is nearest (digits one by one), from 4.7 OpenAI's.
Tools bring a hidden system prompt whose length changed over time for the same model.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from billing.estimation.family import Errors, Family, media_tokens, scaled
from billing.estimation.images import Image, fit, tiles
from billing.estimation.printing import printed_tools, tools_json
from billing.estimation.reading import Choice, Message, Prompt, compact_json
from billing.estimation.text import Tally

_FRAME = 7
_SYSTEM = 3
_FURTHER_MESSAGE = 4
_ANSWER_END = 3
_SYSTEM_ROLES = frozenset({"system", "developer"})

_HIDDEN_TOOLS = (
    (re.compile(r"4[.-][56]"), 500),
    (re.compile(r"[a-z]-?[5-9](?!\d)"), 430),
    (re.compile(r""), 316),
)
"""The system prompt that tools bring, by the model's name; it is nowhere in the request."""
_FORCING = 100
_FORCED = frozenset({"any", "tool", "required"})


@dataclass(frozen=True, slots=True)
class _Rates:
    """Thousandths of the stand-in vocabulary's tokens, tokens of frames, and images' bounds."""

    prompt: int
    tools: int
    completion: int
    call_and_result: int
    answer_call: int
    image_side_pixels: int
    max_image_tokens: int


_BEFORE_4_7 = _Rates(1_070, 1_100, 1_090, 60, 42, 1_568, 1_568)
_FROM_4_7 = _Rates(1_360, 1_360, 1_370, 48, 38, 2_576, 4_784)
_PATCH_PIXELS = 28


def _image_tokens(rates: _Rates, image: Image) -> int:
    if not image.width:
        return rates.max_image_tokens
    width, height = fit(image.width, image.height, rates.image_side_pixels)
    return min(tiles(width, height, _PATCH_PIXELS), rates.max_image_tokens)


def _forced(prompt: Prompt) -> bool:
    choice = prompt.tool_choice
    return isinstance(choice, dict) or (isinstance(choice, str) and choice in _FORCED)


def _tools_tokens(rates: _Rates, prompt: Prompt, tally: Tally) -> int:
    if not prompt.tools:
        return 0
    hidden = next(tokens for name, tokens in _HIDDEN_TOOLS if name.search(prompt.model))
    hidden += _FORCING if _forced(prompt) else 0
    return hidden + scaled(tally(printed_tools(prompt, tools_json)), rates.tools)


def _message_tokens(rates: _Rates, message: Message, tally: Tally) -> int:
    tokens = _SYSTEM if message.role in _SYSTEM_ROLES else _FURTHER_MESSAGE
    tokens += scaled(tally(message.text), rates.prompt)
    for call in message.tool_calls:
        tokens += rates.call_and_result + scaled(tally(call.name + call.arguments), rates.prompt)
    return tokens


def _prompt(rates: _Rates, prompt: Prompt, tally: Tally) -> int:
    tokens = (
        _FRAME - _FURTHER_MESSAGE + media_tokens(prompt.messages, partial(_image_tokens, rates))
    )
    tokens += sum(_message_tokens(rates, message, tally) for message in prompt.messages)
    if prompt.schema is not None:
        tokens += scaled(tally(compact_json(prompt.schema.get("schema"))), rates.tools)
    return tokens + _tools_tokens(rates, prompt, tally)


def _completion(rates: _Rates, choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    tokens = scaled(tally(choice.text) + tally(choice.reasoning), rates.completion)
    for call in choice.tool_calls:
        tokens += rates.answer_call + scaled(tally(call.name + call.arguments), rates.completion)
    return tokens + _ANSWER_END


CLAUDE = Family(
    "claude",
    "Claude before 4.7",
    "qwen3.5-text",
    partial(_prompt, _BEFORE_4_7),
    partial(_completion, _BEFORE_4_7),
    Errors(plain=Decimal("0.06"), tools=Decimal("0.15"), completion=Decimal("0.05")),
    own_vocabulary=False,
)
CLAUDE_4_7 = Family(
    "claude-4.7",
    "Claude from 4.7",
    "o200k_base",
    partial(_prompt, _FROM_4_7),
    partial(_completion, _FROM_4_7),
    Errors(plain=Decimal("0.10"), tools=Decimal("0.15"), completion=Decimal("0.03")),
    own_vocabulary=False,
)
