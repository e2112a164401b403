"""GLM 4 and 5: the frame of the published template; OpenAI's vocabulary stands in for its own.

Source: chat_template of zai-org/GLM-4.6; GLM 5's longer frame is deduced from recorded usage.
"""

import re
from decimal import Decimal

from billing.estimation.family import Errors, Family, media_tokens
from billing.estimation.printing import printed_tools
from billing.estimation.reading import Choice, Message, Prompt, ToolCall, compact_json
from billing.estimation.text import Tally

_BEGIN = 2
_TURN = 1
_GENERATION = 2
_GENERATION_5 = 9
_THINK = 3
_CALL = 8
_TOOLS_TEXT = (
    "\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    "{tools}\n</tools>\n\nFor each function call, output the function name and arguments within the"
    " following XML format:\n<tool_call>{{function-name}}\n<arg_key>{{arg-key-1}}</arg_key>\n"
    "<arg_value>{{arg-value-1}}</arg_value>\n<arg_key>{{arg-key-2}}</arg_key>\n"
    "<arg_value>{{arg-value-2}}</arg_value>\n...\n</tool_call>"
)
_GLM_5 = re.compile(r"glm-?5")


def _call_tokens(call: ToolCall, tally: Tally) -> int:
    return _CALL + tally(call.name) + tally(call.arguments)


def _message_tokens(message: Message, tally: Tally) -> int:
    text = message.text.rsplit("</think>", 1)[-1]
    return _TURN + tally(text) + sum(_call_tokens(call, tally) for call in message.tool_calls)


def _tools_text(prompt: Prompt) -> str:
    return _TOOLS_TEXT.format(tools="\n".join(map(compact_json, prompt.tools)))


def _prompt(prompt: Prompt, tally: Tally) -> int:
    tokens = _BEGIN + (_GENERATION_5 if _GLM_5.search(prompt.model) else _GENERATION)
    tokens += sum(_message_tokens(message, tally) for message in prompt.messages)
    if prompt.tools:
        tokens += _TURN + tally(printed_tools(prompt, _tools_text))
    return tokens + media_tokens(prompt.messages)


def _completion(choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    calls = sum(_call_tokens(call, tally) for call in choice.tool_calls)
    end = _THINK if choice.reasoning else 1
    return tally(choice.text) + tally(choice.reasoning) + calls + end


GLM = Family(
    "glm",
    "GLM",
    "o200k_base",
    _prompt,
    _completion,
    Errors(plain=Decimal("0.05"), tools=Decimal("0.15"), completion=Decimal("0.02")),
    own_vocabulary=False,
)
