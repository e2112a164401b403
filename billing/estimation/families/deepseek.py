"""DeepSeek V3 to V4 and R1: the published template, tools measured on V4.

Source: tokenizer_config.json of deepseek-ai/DeepSeek-V3 and -R1, encoding of V3.2's tools.
"""

import json
import re
from decimal import Decimal

from billing.estimation.family import EXACT, Errors, Family, media_tokens
from billing.estimation.printing import printed_tools
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
_OLD = re.compile(r"r1|v2|v3(?!\.[2-9])")
"""Before V3.2 calls were marked by control tokens."""
_REASONERS = re.compile(r"r1|reasoner")
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


def _old_calls_text(calls: tuple[ToolCall, ...]) -> str:
    inner = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n"
        f"```json\n{call.arguments}\n```<｜tool▁call▁end｜>"
        for call in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def _calls_text(model: str, calls: tuple[ToolCall, ...]) -> str:
    if not calls:
        return ""
    if _OLD.search(model):
        return _old_calls_text(calls)
    inner = "\n".join(map(_call_text, calls))
    return f"\n\n<{_MARK}tool_calls>\n{inner}\n</{_MARK}tool_calls>"


def _without_thought(text: str) -> str:
    """Templates drop the reasoning of earlier turns."""
    return text.rsplit("</think>", 1)[-1] if "</think>" in text else text


def _message_tokens(model: str, message: Message, tally: Tally) -> int:
    if message.role in _SYSTEM_ROLES:
        return tally(message.text)
    if message.role == "assistant":
        text = _without_thought(message.text) + _calls_text(model, message.tool_calls)
        thought = 2 + tally(message.reasoning) if message.tool_calls else 0
        return _ASSISTANT_TURN + thought + tally(text)
    if message.role == "tool":
        return _USER + tally(f"<tool_result>{message.text}</tool_result>") + _GENERATION
    return _USER + tally(message.text)


def _tool_lines(prompt: Prompt) -> str:
    return "\n".join(map(spaced_json, prompt.tools))


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = _BEGIN + _GENERATION + media_tokens(prompt.messages)
    tokens += sum(_message_tokens(prompt.model, message, tally) for message in prompt.messages)
    if "reasoner" in prompt.model:
        tokens += _REASONER
    if prompt.tools and "r1" not in prompt.model:
        tokens += _TOOLS + tally(printed_tools(prompt, _tool_lines))
    return tokens


def _end(choice: Choice, model: str) -> int:
    """What closes the reasoning and, from a reasoner, the answer."""
    whole = choice.finish_reason != "length"
    return (1 if choice.reasoning else 0) + (1 if whole and _REASONERS.search(model) else 0)


def _completion(choice: Choice, prompt: Prompt, tally: Tally) -> int:
    end = _end(choice, prompt.model)
    text = choice.text + _calls_text(prompt.model, choice.tool_calls)
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
