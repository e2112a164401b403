"""gpt-oss: the harmony format, with the system message that its servers write.

Source: the chat template published with openai/gpt-oss-120b.
"""

from collections.abc import Iterable
from decimal import Decimal

from billing.estimation.families.openai import printed_functions, schema_text
from billing.estimation.family import EXACT, Errors, Family, media_tokens
from billing.estimation.printing import printed_tools
from billing.estimation.reading import Choice, Message, Prompt
from billing.estimation.text import Tally

_SYSTEM = 61
"""Identity, knowledge cutoff, current date, reasoning effort and valid channels, framed."""
_CALLS_CHANNEL = 16
"""The line that sends calls to the commentary channel."""
_GROQ = 4
"""Groq's own, whose name for the model has the maker's name before it."""
_GENERATION = 2
_FRAME = 4
"""`<|start|>` role `<|message|>` ... `<|end|>`."""
_CHANNEL = 2
"""`<|channel|>` and its name."""
_TO_ASSISTANT = 4
"""` to=assistant` in the head of a tool's result."""
_CALL_FORMAT = 2
"""`<|constrain|>json`."""

_SYSTEM_ROLES = frozenset({"system", "developer"})


def _developer_tokens(prompt: Prompt, tally: Tally) -> int:
    told = [message.text for message in prompt.messages if message.role in _SYSTEM_ROLES]
    parts = [f"# Instructions\n\n{text}\n\n" for text in told]
    if prompt.tools:
        parts.append(f"# Tools\n\n## functions\n\n{printed_tools(prompt, printed_functions)}")
    if prompt.schema is not None:
        parts.append(schema_text(prompt.schema))
    return _FRAME + tally("".join(parts)) if parts else 0


def _assistant_tokens(message: Message, tally: Tally) -> int:
    """A turn's calls, with what was thought before them, or its answer."""
    if not message.tool_calls:
        return _FRAME + _CHANNEL + tally(message.text)
    thought = message.reasoning or message.text.rsplit("</think>", 1)[-1].strip()
    tokens = _FRAME + _CHANNEL + tally(thought) if thought else 0
    for call in message.tool_calls:
        head = tally(f" to=functions.{call.name}") + _CHANNEL + _CALL_FORMAT
        tokens += _FRAME + head + tally(call.arguments)
        tokens += _CHANNEL + _TO_ASSISTANT + tally(f"functions.{call.name}") - 1
    return tokens


def _turns_tokens(messages: Iterable[Message], tally: Tally) -> int:
    tokens = 0
    for message in messages:
        if message.role == "assistant":
            tokens += _assistant_tokens(message, tally)
        elif message.role not in _SYSTEM_ROLES:
            tokens += _FRAME + tally(message.text)
    return tokens


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = _SYSTEM + _GENERATION + media_tokens(prompt.messages)
    if prompt.tools:
        tokens += _CALLS_CHANNEL
    if prompt.model.startswith("openai/"):
        tokens += _GROQ
    return tokens + _developer_tokens(prompt, tally) + _turns_tokens(prompt.messages, tally)


_ANALYSIS = 6
"""`<|channel|>analysis<|message|>` ... `<|end|><|start|>assistant`."""
_FINAL = 4
"""`<|channel|>final<|message|>` ... `<|return|>`."""
_COMMENTARY = 6
"""`<|channel|>commentary`, `<|constrain|>json<|message|>` ... `<|call|>`."""


def _completion(choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    tokens = _ANALYSIS + tally(choice.reasoning) if choice.reasoning else 0
    if choice.text:
        tokens += _FINAL + tally(choice.text)
    for call in choice.tool_calls:
        tokens += _COMMENTARY + tally(f" to=functions.{call.name}") + tally(call.arguments)
    return tokens


GPT_OSS = Family(
    "gpt-oss",
    "gpt-oss (harmony)",
    "o200k_base",
    _prompt,
    _completion,
    Errors(plain=EXACT, tools=Decimal("0.03"), completion=EXACT),
    public_template=True,
)
