"""A chat-completion body and answer, read into what is counted. Total: nothing raises.

Clients and vendors send content as text, lists of parts, null and worse; what no rule knows is
flagged, not refused, since the vendor has judged the request already.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from billing.estimation.images import Image, read_image

MEDIA = "media"
UNKNOWN_PARTS = "unknown_parts"

_TEXT_KEYS = ("text", "refusal", "thinking", "transcript")
_MEDIA_TYPES = frozenset({"input_audio", "audio", "audio_url", "video", "video_url", "input_video"})
_FILE_TYPES = frozenset({"file", "input_file", "document", "image_file"})
_IMAGE_KEYS = ("image_url", "image", "input_image", "source")
MAX_PART_DEPTH = 4
MAX_NESTING = 64
"""Depth to which families print a JSON value in their own form; deeper it is JSON."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: str
    identifier: str = ""


class Message(NamedTuple):
    """One message: its text parts joined, and what is not text beside them.

    A tuple, since holds make one of every message: a frozen dataclass takes four times as long.
    """

    role: str
    text: str
    name: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    images: tuple[Image, ...] = ()
    other_media: int = 0
    unknown_parts: int = 0
    legacy_call: bool = False


class Prompt(NamedTuple):
    """A request. `tools` are function objects, `raw_tools` the same as they were sent.

    `tools_json` tells one request's tools from another's; empty if there are none or they cannot be
    printed.

    `schema` is the response format's {name, description, schema, strict}.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    schema: Mapping[str, Any] | None = None
    thinking: bool | None = None
    effort: str = ""
    raw_tools: tuple[Any, ...] = ()
    tools_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a completion."""

    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""

    @property
    def delivered(self) -> bool:
        return bool(self.text or self.reasoning or self.tool_calls)


def compact_json(value: Any) -> str:
    """JSON without spaces; for what JSON cannot say, Python's words for it."""
    return _dump(value, (",", ":"))


def spaced_json(value: Any) -> str:
    """JSON as templates print it: a space after commas and colons, letters unescaped."""
    return _dump(value, (", ", ": "))


def _dump(value: Any, separators: tuple[str, str]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=separators, default=str)
    except (RecursionError, TypeError, ValueError):
        return ",".join(_leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    """The names and values of what is nested too deeply to be printed, in no good order."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            waiting.extend(item.values())
            yield from map(str, item)
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        else:
            yield str(item)


def read_prompt(request: Mapping[str, Any], model: str) -> Prompt:
    choice = request.get("tool_choice")
    return Prompt(
        model=model,
        messages=tuple(map(read_message, _items(request.get("messages")))),
        tools=_functions(request),
        tool_choice=request.get("function_call") if choice is None else choice,
        schema=_schema(_mapping(request.get("response_format"))),
        thinking=_thinking(request),
        effort=text_of(request.get("reasoning_effort")),
        raw_tools=_items(request.get("tools")),
        tools_json=_tools_json(request),
    )


def _tools_json(request: Mapping[str, Any]) -> bytes:
    tools, functions = request.get("tools"), request.get("functions")
    if not tools and not functions:
        return b""
    try:
        return orjson.dumps((tools, functions))
    except TypeError:
        return b""


def _functions(request: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    if "tools" not in request and "functions" not in request:
        return ()
    functions = tuple(filter(None, map(_function, _items(request.get("tools")))))
    return functions or tuple(filter(None, map(_mapping, _items(request.get("functions")))))


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else ()


_OBJECTS = (dict, Mapping)
"""The first is what JSON gives, and many times faster to tell than the second."""
_NOTHING: Mapping[str, Any] = {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, _OBJECTS) else _NOTHING


def text_of(value: Any) -> str:
    """The value as text: null is empty, an object is its JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return compact_json(value)


_SCHEMA_KEYS = ("parameters", "input_schema", "parameters_json_schema")


def _function(tool: Any) -> Mapping[str, Any]:
    """A tool as {name, description, parameters}, whichever vendor's dialect it is in."""
    function = _mapping(tool).get("function")
    function = function if isinstance(function, Mapping) else _mapping(tool)
    other = next((key for key in _SCHEMA_KEYS if key in function), "parameters")
    if other == "parameters":
        return function
    kept = {key: function[key] for key in ("name", "description") if key in function}
    return {**kept, "parameters": function[other]}


def _schema(form: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if form.get("type") != "json_schema":
        return None
    wrapped = _mapping(form.get("json_schema"))
    return wrapped if "schema" in wrapped else {"schema": wrapped}


_THINKING_KEYS = ("enable_thinking", "thinking")


def _thinking(request: Mapping[str, Any]) -> bool | None:
    """Whether the request switches a template's thinking on or off; None leaves it alone."""
    for place in (_mapping(request.get("chat_template_kwargs")), request):
        for key in _THINKING_KEYS:
            if isinstance(value := place.get(key), bool):
                return value
    return None


def read_message(value: Any) -> Message:
    message = _mapping(value)
    role = text_of(message.get("role")) or "user"
    content = message.get("content")
    if isinstance(content, str) and len(message) == len(("role", "content")):
        return Message(role, content)
    parts = _Parts()
    parts.add(content if message else value)
    return Message(
        role=role,
        text="".join(parts.texts) or text_of(message.get("refusal")),
        name=text_of(message.get("name")),
        reasoning=reasoning_of(message),
        tool_calls=tool_calls_of(message),
        images=tuple(parts.images),
        other_media=parts.other_media,
        unknown_parts=parts.unknown,
        legacy_call=isinstance(message.get("function_call"), Mapping),
    )


class _Parts:
    """Sorts the parts of a message's content."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.images: list[Image] = []
        self.other_media = 0
        self.unknown = 0

    def add(self, content: Any, depth: int = 0) -> None:
        if content is None:
            return
        if isinstance(content, list | tuple):
            for part in content:
                self._part(part, depth)
        elif isinstance(content, _OBJECTS):
            self._part(content, depth)
        else:
            self.texts.append(text_of(content))

    def _part(self, part: Any, depth: int) -> None:
        if not isinstance(part, _OBJECTS):
            self.texts.append(text_of(part))
            return
        kind = part.get("type")
        if isinstance(kind, str) and kind in _MEDIA_TYPES | _FILE_TYPES:
            self.other_media += 1
        elif image := _image(part):
            self.images.append(image)
        elif text := next(_part_texts(part), None):
            self.texts.append(text)
        elif "content" in part and depth < MAX_PART_DEPTH:
            self.add(part["content"], depth + 1)
        elif "text" not in part:
            self.unknown += 1


def _part_texts(part: Mapping[str, Any]) -> Iterator[str]:
    return (part[key] for key in _TEXT_KEYS if isinstance(part.get(key), str))


def _image(part: Mapping[str, Any]) -> Image | None:
    kind = part.get("type")
    if not (isinstance(kind, str) and "image" in kind) and "image_url" not in part:
        return None
    detail = part.get("detail")
    for key in _IMAGE_KEYS:
        value = part.get(key)
        if isinstance(value, Mapping):
            detail = value.get("detail", detail)
            value = value.get("url") or value.get("data")
        if isinstance(value, str):
            return read_image(value, detail=detail)
    return Image(low_detail=detail == "low")


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Reasoning that the vendor showed: one field of the two names in use, never both."""
    for key in ("reasoning_content", "reasoning"):
        value = message.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def tool_calls_of(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    calls = tuple(_call(call) for call in _items(message.get("tool_calls")))
    legacy = message.get("function_call")
    return (*calls, _call({"function": legacy})) if isinstance(legacy, Mapping) else calls


_CALL_KEYS = ("function", "custom", "functionCall")
_ARGUMENT_KEYS = ("arguments", "input", "args")


def _call(value: Any) -> ToolCall:
    call = _mapping(value)
    wrapped = next((call[key] for key in _CALL_KEYS if key in call), call)
    function = _mapping(wrapped)
    arguments = next((function[key] for key in _ARGUMENT_KEYS if key in function), None)
    return ToolCall(text_of(function.get("name")), text_of(arguments), text_of(call.get("id")))


def read_choices(completion: Mapping[str, Any] | None, finish_reason: str | None) -> list[Choice]:
    """The answers of an assembled `chat.completion`; an error beside them is not read."""
    choices = _items((completion or {}).get("choices"))
    return [_choice(_mapping(choice), finish_reason) for choice in choices]


def _choice(choice: Mapping[str, Any], finish_reason: str | None) -> Choice:
    message = _mapping(choice.get("message"))
    parts = _Parts()
    parts.add(message.get("content"))
    parts.texts.append(text_of(message.get("refusal")))
    parts.texts.append(text_of(_mapping(message.get("audio")).get("transcript")))
    if not message:
        parts.texts.append(text_of(choice.get("text")))
    return Choice(
        text="".join(parts.texts),
        reasoning=reasoning_of(message),
        tool_calls=tool_calls_of(message),
        finish_reason=text_of(choice.get("finish_reason")) or finish_reason or "",
    )
