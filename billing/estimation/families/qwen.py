"""Qwen 2 to 3.6: ChatML, rendered as the models' published chat templates do.

Source: `chat_template` in tokenizer_config.json of Qwen/Qwen2.5-7B-Instruct, Qwen/Qwen3-8B,
Qwen/Qwen3-Coder-480B-A35B-Instruct and Qwen/Qwen3.5; checked against llama.cpp's and mlx_lm's
servers with the true vocabulary.
"""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from billing.estimation.family import EXACT, Errors, Family, media_tokens
from billing.estimation.images import Image, tiles
from billing.estimation.printing import printed_tools
from billing.estimation.reading import Choice, Message, Prompt, ToolCall, spaced_json, text_of
from billing.estimation.text import Tally

_FRAME = 3
"""`<|im_start|>`, `<|im_end|>` and the newline after it."""
_GENERATION = 3
"""`<|im_start|>assistant` and a newline."""
_EMPTY_THINK = 4
"""`<think>`, a blank line, `</think>`, a blank line: thinking is off."""
_OPEN_THINK = 2
"""`<think>` and a newline: the model goes on from there."""

_QWEN_2_SYSTEM = "You are a helpful assistant."
_QWEN_2_5_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
_CODER_SYSTEM = (
    "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks."
)
_HERMES_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_HERMES_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments"
    " within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
_XML_BEFORE = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
_XML_AFTER = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO"
    " suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second"
    " parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner"
    " <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n- You may provide optional reasoning for your"
    " function call in natural language BEFORE the function call, but NOT after\n- If there is no"
    " function call available, answer the question like normal with your current knowledge and do"
    " not tell the user about function calls\n</IMPORTANT>"
)

_IMAGE_PATCH_PIXELS = 28
_MAX_IMAGE_TOKENS = 1_280
_IMAGE_FRAME = 2


def _framed(role: str, body: str, tally: Tally) -> int:
    return _FRAME + tally(f"{role}\n{body}")


def _image_tokens(image: Image) -> int:
    if not image.width:
        return _MAX_IMAGE_TOKENS + _IMAGE_FRAME
    patches = tiles(image.width, image.height, _IMAGE_PATCH_PIXELS)
    return min(patches, _MAX_IMAGE_TOKENS) + _IMAGE_FRAME


def _arguments(call: ToolCall) -> str:
    """Servers parse a call's arguments and print them anew."""
    try:
        return spaced_json(json.loads(call.arguments))
    except (ValueError, RecursionError):
        return call.arguments


def _hermes_call(call: ToolCall) -> str:
    return f'<tool_call>\n{{"name": "{call.name}", "arguments": {_arguments(call)}}}\n</tool_call>'


def _xml_call(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    pairs = arguments.items() if isinstance(arguments, dict) else ()
    parameters = "".join(
        f"<parameter={name}>\n{value if isinstance(value, str) else spaced_json(value)}\n"
        "</parameter>\n"
        for name, value in pairs
    )
    return f"<tool_call>\n<function={call.name}>\n{parameters}</function>\n</tool_call>"


def _runs_of_tools(messages: Iterable[Message]) -> Iterable[Message]:
    """Joins neighbouring tool results into the one user turn that templates make of them."""
    results: list[str] = []
    for message in messages:
        if message.role == "tool":
            results.append(f"<tool_response>\n{message.text}\n</tool_response>")
            continue
        if results:
            yield Message("user", "\n".join(results))
            results = []
        yield message
    if results:
        yield Message("user", "\n".join(results))


def _split_system(prompt: Prompt) -> tuple[str | None, tuple[Message, ...]]:
    messages = prompt.messages
    if messages and messages[0].role in {"system", "developer"}:
        return messages[0].text, messages[1:]
    return None, messages


def _tool_lines(prompt: Prompt) -> str:
    return "".join("\n" + spaced_json(tool) for tool in prompt.raw_tools)


def _turns(messages: Iterable[Message], tally: Tally) -> int:
    return sum(_framed(message.role, message.text, tally) for message in messages)


# --- Qwen 2 and 2.5 -----------------------------------------------------------------------------


def _with_calls_2_5(message: Message) -> Message:
    if not message.tool_calls:
        return message
    calls = [_hermes_call(call) for call in message.tool_calls]
    return Message(message.role, "\n".join([message.text, *calls] if message.text else calls))


def _prompt_2(default_system: str, prompt: Prompt, tally: Tally) -> int:
    system, messages = _split_system(prompt)
    system = default_system if system is None else system
    if prompt.raw_tools:
        tools = printed_tools(prompt, _tool_lines)
        system += f"\n\n{_HERMES_BEFORE}{tools}{_HERMES_AFTER}"
    turns = _runs_of_tools(map(_with_calls_2_5, messages))
    return (
        _framed("system", system, tally)
        + _turns(turns, tally)
        + media_tokens(prompt.messages, _image_tokens)
        + _GENERATION
    )


def _calls_text(choice: Choice) -> str:
    calls = "\n".join(map(_hermes_call, choice.tool_calls))
    return f"{choice.text}\n{calls}" if choice.text and calls else choice.text + calls


def _end(choice: Choice) -> int:
    """`<|im_end|>` is generated too, unless the answer was cut."""
    return 0 if choice.finish_reason == "length" else 1


def _completion_2(choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    return tally(choice.reasoning) + tally(_calls_text(choice)) + _end(choice)


# --- Qwen 3 -------------------------------------------------------------------------------------


def _last_query(messages: tuple[Message, ...]) -> int:
    """The last turn that a user wrote: reasoning before it is dropped from the prompt."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        answer = message.text.startswith("<tool_response>") and message.text.endswith(
            "</tool_response>"
        )
        if message.role == "user" and not answer:
            return index
    return len(messages) - 1


def _split_reasoning(message: Message) -> tuple[str, str]:
    if message.reasoning or "</think>" not in message.text:
        return message.reasoning, message.text
    before, after = message.text.split("</think>", 1)[0], message.text.rsplit("</think>", 1)[1]
    return before.rstrip("\n").rsplit("<think>", 1)[-1].lstrip("\n"), after.lstrip("\n")


def _assistant_3(message: Message, index: int, last_query: int, *, last: bool) -> Message:
    reasoning, text = _split_reasoning(message)
    if index > last_query and (last or reasoning):
        thought = reasoning.strip("\n")
        text = f"<think>\n{thought}\n</think>\n\n" + text.lstrip("\n")
    calls = "\n".join(map(_hermes_call, message.tool_calls))
    if calls:
        text = f"{text}\n{calls}" if text else calls
    return Message(message.role, text)


def _messages_3(messages: tuple[Message, ...]) -> Iterable[Message]:
    last_query = _last_query(messages)
    for index, message in enumerate(messages):
        if message.role == "assistant":
            last = index == len(messages) - 1
            yield _assistant_3(message, index, last_query, last=last)
        else:
            yield message


def _system_3(system: str | None, prompt: Prompt) -> str | None:
    if not prompt.raw_tools:
        return system
    tools = printed_tools(prompt, _tool_lines)
    before = "" if system is None else system + "\n\n"
    return f"{before}{_HERMES_BEFORE}{tools}{_HERMES_AFTER}"


def _prompt_3(thinks: bool | None, prompt: Prompt, tally: Tally) -> int:
    """`thinks` is the server's own setting; the request's wins."""
    system, messages = _split_system(prompt)
    system = _system_3(system, prompt)
    tokens = 0 if system is None else _framed("system", system, tally)
    tokens += _turns(_runs_of_tools(_messages_3(messages)), tally)
    tokens += media_tokens(prompt.messages, _image_tokens) + _GENERATION
    if "thinking-2507" in prompt.model:
        return tokens + _OPEN_THINK
    setting = thinks if prompt.thinking is None else prompt.thinking
    toggled = setting is False and "instruct-2507" not in prompt.model
    return tokens + (_EMPTY_THINK if toggled else 0)


def _completion_3(choice: Choice, prompt: Prompt, tally: Tally) -> int:
    text = _calls_text(choice)
    if choice.reasoning:
        opening = "" if "thinking-2507" in prompt.model else "<think>\n"
        text = f"{opening}{choice.reasoning}\n</think>\n\n{text}"
    return tally(text) + _end(choice)


# --- Qwen 3 Coder and 3.5: tools and calls as XML -----------------------------------------------


def _extra_keys(value: Any, handled: frozenset[str]) -> str:
    if not isinstance(value, Mapping):
        return ""
    return "".join(
        f"\n<{key}>{spaced_json(item) if isinstance(item, Mapping | list) else text_of(item)}"
        f"</{key}>"
        for key, item in value.items()
        if key not in handled
    )


_PARAMETER_KEYS = frozenset({"name", "type", "description"})
_PARAMETERS_KEYS = frozenset({"type", "properties"})
_FUNCTION_KEYS = frozenset({"type", "name", "description", "parameters"})


def _tag(name: str, holder: Mapping[str, Any], key: str) -> str:
    return f"\n<{name}>{text_of(holder[key]).strip()}</{name}>" if key in holder else ""


def _coder_parameter(name: str, fields: Any) -> str:
    holder = fields if isinstance(fields, Mapping) else {}
    return (
        f"\n<parameter>\n<name>{name}</name>{_tag('type', holder, 'type')}"
        f"{_tag('description', holder, 'description')}"
        f"{_extra_keys(holder, _PARAMETER_KEYS)}\n</parameter>"
    )


def _coder_function(function: Mapping[str, Any]) -> str:
    parameters = function.get("parameters")
    holder = parameters if isinstance(parameters, Mapping) else {}
    properties = holder.get("properties")
    fields = properties.items() if isinstance(properties, Mapping) else ()
    return (
        f"\n<function>\n<name>{text_of(function.get('name'))}</name>"
        f"{_tag('description', function, 'description')}\n<parameters>"
        f"{''.join(_coder_parameter(name, field) for name, field in fields)}"
        f"{_extra_keys(holder, _PARAMETERS_KEYS)}\n</parameters>"
        f"{_extra_keys(function, _FUNCTION_KEYS)}\n</function>"
    )


def _coder_functions(prompt: Prompt) -> str:
    return "".join(map(_coder_function, prompt.tools))


def _with_xml_calls(text: str, calls: tuple[ToolCall, ...]) -> str:
    printed = "\n".join(map(_xml_call, calls))
    return f"{text}\n\n{printed}" if text and printed else text + printed


def _coder_message(message: Message) -> Message:
    if not message.tool_calls:
        return message
    return Message(message.role, _with_xml_calls(message.text.strip(), message.tool_calls))


def _prompt_coder(prompt: Prompt, tally: Tally) -> int:
    system, messages = _split_system(prompt)
    if prompt.tools:
        system = _CODER_SYSTEM if system is None else system
        functions = printed_tools(prompt, _coder_functions)
        system += f"\n\n{_XML_BEFORE}{functions}{_XML_AFTER}"
    tokens = 0 if system is None else _framed("system", system, tally)
    turns = _runs_of_tools(map(_coder_message, messages))
    return (
        tokens + _turns(turns, tally) + media_tokens(prompt.messages, _image_tokens) + _GENERATION
    )


def _completion_xml(choice: Choice, _prompt: Prompt, tally: Tally) -> int:
    text = _with_xml_calls(choice.text, choice.tool_calls)
    if choice.reasoning:
        text = f"{choice.reasoning}\n</think>\n\n{text}"
    return tally(text) + _end(choice)


def _messages_3_5(messages: tuple[Message, ...]) -> Iterable[Message]:
    last_query = _last_query(messages)
    for index, message in enumerate(messages):
        if message.role != "assistant":
            yield message._replace(text=message.text.strip())
            continue
        reasoning, text = _split_reasoning(message)
        text = _with_xml_calls(text.strip(), message.tool_calls)
        if index > last_query:
            text = f"<think>\n{reasoning.strip()}\n</think>\n\n{text}"
        yield Message(message.role, text)


def _prompt_3_5(thinks: bool | None, prompt: Prompt, tally: Tally) -> int:
    system, messages = _split_system(prompt)
    system = None if system is None else system.strip()
    if prompt.raw_tools:
        after = f"\n\n{system}" if system else ""
        system = f"{_XML_BEFORE}{printed_tools(prompt, _tool_lines)}{_XML_AFTER}{after}"
    tokens = 0 if system is None else _framed("system", system, tally)
    tokens += _turns(_runs_of_tools(_messages_3_5(messages)), tally)
    setting = thinks if prompt.thinking is None else prompt.thinking
    think = _EMPTY_THINK if setting is False else _OPEN_THINK
    return tokens + media_tokens(prompt.messages, _image_tokens) + _GENERATION + think


# --- the rows -----------------------------------------------------------------------------------

_ERRORS = Errors(plain=EXACT, tools=Decimal("0.03"), completion=EXACT)


def _family(name: str, title: str, vocabulary: str, prompt: Any, completion: Any) -> Family:
    return Family(
        name,
        title,
        vocabulary,
        prompt,
        completion,
        _ERRORS,
        public_template=True,
        public_tools=True,
    )


QWEN_2 = _family("qwen2", "Qwen 2", "qwen2", partial(_prompt_2, _QWEN_2_SYSTEM), _completion_2)
QWEN_2_5 = _family(
    "qwen2.5", "Qwen 2.5", "qwen2", partial(_prompt_2, _QWEN_2_5_SYSTEM), _completion_2
)
QWEN_3 = _family("qwen3", "Qwen 3", "qwen3", partial(_prompt_3, None), _completion_3)
QWEN_3_SILENT = _family(
    "qwen3-nothink",
    "Qwen 3 on a server that switches thinking off",
    "qwen3",
    partial(_prompt_3, False),
    _completion_3,
)
QWEN_3_CODER = _family("qwen3-coder", "Qwen 3 Coder", "qwen3", _prompt_coder, _completion_xml)
QWEN_3_5 = _family("qwen3.5", "Qwen 3.5", "qwen3.5", partial(_prompt_3_5, None), _completion_xml)
QWEN_3_5_SILENT = _family(
    "qwen3.5-nothink",
    "Qwen 3.5 on a server that switches thinking off",
    "qwen3.5",
    partial(_prompt_3_5, False),
    _completion_xml,
)
