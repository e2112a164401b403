"""Mistral: the frame of its tekken template; Qwen 3.5's vocabulary stands in for tekken.

Both take digits one by one and are trained on many languages, which OpenAI's is not: on recorded
answers it is half as far off. Frames deduced from recorded usage.
"""

import re
from decimal import Decimal

from billing.estimation.family import Errors, Family, media_tokens, scaled
from billing.estimation.printing import printed_tools
from billing.estimation.reading import Choice, Message, Prompt, spaced_json
from billing.estimation.text import Tally

_BEGIN = 1
_USER = 2
_ASSISTANT = 1
_REASONING_PROMPT = 12
_TOOLS = 7
_CALL = 3
_ANSWER_CALL = 3
_PER_MILLE = 1_020
_OLD_PER_MILLE = 1_180
"""Of answers of the first models, whose vocabulary is a quarter of tekken's."""
_OLD = re.compile(r"tiny|7b|8x7b|8x22b")
_REASONS = re.compile(r"magistral|small.*reason")


def _text_tokens(text: str, tally: Tally) -> int:
    return scaled(tally(text), _PER_MILLE)


def _message_tokens(message: Message, tally: Tally) -> int:
    frame = _ASSISTANT if message.role == "assistant" else _USER
    tokens = frame + _text_tokens(message.text, tally)
    for call in message.tool_calls:
        tokens += _CALL + _text_tokens(call.name + call.arguments, tally)
    return tokens


def _tools_text(prompt: Prompt) -> str:
    return spaced_json(prompt.raw_tools)


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = _BEGIN + media_tokens(prompt.messages)
    tokens += sum(_message_tokens(message, tally) for message in prompt.messages)
    if prompt.tools:
        tokens += _TOOLS + _text_tokens(printed_tools(prompt, _tools_text), tally)
    return tokens + (_REASONING_PROMPT if _REASONS.search(prompt.model) else 0)


def _completion(choice: Choice, prompt: Prompt, tally: Tally) -> int:
    rate = _OLD_PER_MILLE if _OLD.search(prompt.model) else _PER_MILLE
    calls = (call.name + call.arguments for call in choice.tool_calls)
    tokens = scaled(tally(choice.text + choice.reasoning), rate)
    return tokens + sum(scaled(tally(call), rate) + _ANSWER_CALL for call in calls) + 1


MISTRAL = Family(
    "mistral",
    "Mistral",
    "qwen3.5-text",
    _prompt,
    _completion,
    Errors(plain=Decimal("0.05"), tools=Decimal("0.05"), completion=Decimal("0.04")),
    own_vocabulary=False,
)
