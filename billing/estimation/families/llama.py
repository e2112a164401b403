"""Llama 3: the published template over OpenAI's cl100k, of which its vocabulary is an extension.

The first 100,000 tokens are the same, so English and code count the same; other scripts count
somewhat less than here. Source: chat_template of meta-llama/Llama-3.1-8B-Instruct.
"""

from decimal import Decimal
from functools import partial

from billing.estimation.family import Errors, Family, media_tokens
from billing.estimation.printing import printed_tools, spaced_tools_json
from billing.estimation.reading import Choice, Message, Prompt, ToolCall, spaced_json
from billing.estimation.text import Tally

_BEGIN = 1
_FRAME = 5
"""Header start, role, header end, blank line; end of turn."""
_GENERATION = 4
_DATES = 25
"""From 3.1 on: a system message with the knowledge cutoff and today's date."""
_DATES_IN_SYSTEM = 20
_TOOLS_TEXT = (
    "Given the following functions, please respond with a JSON for a function call with its proper"
    " arguments that best answers the given prompt.\n\nRespond in the format"
    ' {"name": function name, "parameters": dictionary of argument name and its value}.'
    "Do not use variables.\n\n"
)
_LLAMA_4_TOOLS = 620
"""What servers of Llama 4 add to a request with tools."""
_CALL = 8
_LLAMA_4_CALL = 13


def _call_text(call: ToolCall) -> str:
    return f'{{"name": "{call.name}", "parameters": {call.arguments}}}'


def _message_tokens(message: Message, tally: Tally) -> int:
    calls = "".join(map(_call_text, message.tool_calls))
    return _FRAME + tally(message.text.strip() + calls)


def _dates(prompt: Prompt) -> int:
    if any(name in prompt.model for name in ("llama3-", "llama-3-", "llama3.0")):
        return 0
    first = prompt.messages[0].role if prompt.messages else ""
    return _DATES_IN_SYSTEM if first == "system" else _DATES


def _tools_text(prompt: Prompt) -> str:
    return _TOOLS_TEXT + "\n\n".join(map(spaced_json, prompt.raw_tools))


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = _BEGIN + _GENERATION + _dates(prompt) + media_tokens(prompt.messages)
    tokens += sum(_message_tokens(message, tally) for message in prompt.messages)
    if prompt.tools:
        tokens += tally(printed_tools(prompt, _tools_text))
    return tokens


def _prompt_4(prompt: Prompt, tally: Tally) -> int:
    tokens = _BEGIN + _GENERATION + media_tokens(prompt.messages)
    tokens += sum(_message_tokens(message, tally) for message in prompt.messages)
    if prompt.tools:
        tokens += _LLAMA_4_TOOLS + tally(printed_tools(prompt, spaced_tools_json))
    return tokens


def _completion(per_call: int, choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    calls = sum(tally(call.name) + tally(call.arguments) + per_call for call in choice.tool_calls)
    end = 0 if choice.finish_reason == "length" else 1
    return tally(choice.text) + tally(choice.reasoning) + calls + end


_ERRORS = Errors(plain=Decimal("0.02"), tools=Decimal("0.15"), completion=Decimal("0.02"))

LLAMA_3 = Family(
    "llama3",
    "Llama 3",
    "cl100k_base",
    _prompt,
    partial(_completion, _CALL),
    _ERRORS,
    own_vocabulary=False,
)
LLAMA_4 = Family(
    "llama4",
    "Llama 4",
    "o200k_base",
    _prompt_4,
    partial(_completion, _LLAMA_4_CALL),
    Errors(plain=Decimal("0.10"), tools=Decimal("0.15"), completion=Decimal("0.10")),
    own_vocabulary=False,
)
