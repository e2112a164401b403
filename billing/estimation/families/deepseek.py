"""DeepSeek V3 to V4 and R1: the published template, tools measured on V4.

Source: tokenizer_config.json of deepseek-ai/DeepSeek-V3 and -R1, encoding of V3.2's tools.
"""

import json
from decimal import Decimal

from billing.estimation.family import EXACT, Errors, Family, other_media_tokens
from billing.estimation.reading import Choice, Message, Prompt, ToolCall, spaced_json
from billing.estimation.text import Tally

_BEGIN = 1
_USER = 1
_ASSISTANT_TURN = 2
"""`<Assistant>` ... `<end of sentence>`."""
_GENERATION = 1
_REASONER = 2
"""`<think>` and a newline, on DeepSeek's own reasoner."""
_TOOLS = 222
"""How to call a tool, in V4's system message."""
_MARK = "｜DSML｜"
_SYSTEM_ROLES = frozenset({"system", "developer"})


def _call_text(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    pairs = arguments.items() if isinstance(arguments, dict) else ()
    parameters = "".join(map(_parameter_text, *zip(*pairs, strict=True))) if pairs else ""
    return f'<{_MARK}invoke name="{call.name}">\n{parameters}</{_MARK}invoke>'


def _parameter_text(name: str, value: object) -> str:
    is_text = isinstance(value, str)
    shown = value if is_text else spaced_json(value)
    return (
        f'<{_MARK}parameter name="{name}" string="{str(is_text).lower()}">'
        f"{shown}</{_MARK}parameter>\n"
    )


def _calls_text(calls: tuple[ToolCall, ...]) -> str:
    inner = "\n".join(map(_call_text, calls))
    return f"\n\n<{_MARK}tool_calls>\n{inner}\n</{_MARK}tool_calls>" if calls else ""


def _without_thought(text: str) -> str:
    """Templates drop the reasoning of earlier turns."""
    return text.rsplit("</think>", 1)[-1] if "</think>" in text else text


def _message_tokens(message: Message, tally: Tally) -> int:
    if message.role in _SYSTEM_ROLES:
        return tally(message.text)
    if message.role == "assistant":
        text = _without_thought(message.text) + _calls_text(message.tool_calls)
        thought = 2 + tally(message.reasoning) if message.tool_calls else 0
        return _ASSISTANT_TURN + thought + tally(text)
    if message.role == "tool":
        return _USER + tally(f"<tool_result>{message.text}</tool_result>") + _GENERATION
    return _USER + tally(message.text)


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = _BEGIN + _GENERATION + other_media_tokens(prompt.messages)
    tokens += sum(_message_tokens(message, tally) for message in prompt.messages)
    if "reasoner" in prompt.model:
        tokens += _REASONER
    if prompt.tools and "r1" not in prompt.model:
        tokens += _TOOLS + tally("\n".join(map(spaced_json, prompt.tools)))
    return tokens


def _completion(choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    end = 1 if choice.reasoning else 0
    text = choice.text + _calls_text(choice.tool_calls)
    return tally(choice.reasoning) + tally(text) + end


DEEPSEEK = Family(
    "deepseek",
    "DeepSeek",
    "deepseek",
    _prompt,
    _completion,
    Errors(plain=EXACT, tools=Decimal("0.05"), completion=Decimal("0.002")),
    public_template=True,
)
