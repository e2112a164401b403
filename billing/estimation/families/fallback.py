"""Models that no row names: OpenAI's newest vocabulary and its plain message frame.

Stated as approximate: half of the recorded calls of such models are within 15 %, some have hidden
prompts of hundreds of tokens that nothing of the request shows.
"""

from decimal import Decimal
from functools import partial

from billing.estimation.families.openai import image_tokens
from billing.estimation.family import Errors, Family, media_tokens
from billing.estimation.printing import printed_tools, spaced_tools_json
from billing.estimation.reading import Choice, Prompt, compact_json
from billing.estimation.text import Tally

_PER_MESSAGE = 3
_REPLY = 3


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = _REPLY + media_tokens(prompt.messages, partial(image_tokens, prompt.model))
    for message in prompt.messages:
        tokens += _PER_MESSAGE + tally(message.text)
        tokens += sum(tally(call.name) + tally(call.arguments) for call in message.tool_calls)
    if prompt.tools:
        tokens += tally(printed_tools(prompt, spaced_tools_json))
    if prompt.schema is not None:
        tokens += tally(compact_json(prompt.schema.get("schema")))
    return tokens


def _completion(choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    calls = sum(tally(call.name) + tally(call.arguments) for call in choice.tool_calls)
    return tally(choice.text) + tally(choice.reasoning) + calls + 1


FALLBACK = Family(
    "fallback",
    "another vendor's model",
    "o200k_base",
    _prompt,
    _completion,
    Errors(plain=Decimal("0.15"), tools=Decimal("0.30"), completion=Decimal("0.10")),
    own_vocabulary=False,
)
