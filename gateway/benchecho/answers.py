"""The bodies that benchecho sends, as pure functions of the request and the behaviour.

How it counts, since a vendor's word is only worth its rule:

- prompt tokens: the whitespace-separated words in the texts of all messages, plus 4 a message;
- completion tokens: 8 for each repetition of the phrase, reasoning included, and 8 for a tool
  call or a structured answer. The fixed answer repeats the phrase eight times: 64.
  `echo-chunks-N-…` repeats it N times.

`max_tokens` is not obeyed, so that an answer beyond its bound can be tested.
"""

import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

import orjson

from gateway.benchecho.behaviours import Behaviour, Fault, Output, Usage
from gateway.benchecho.examples import example

PHRASE: Final = "farthing-benchecho-fixed-response"
REASONING_REPETITIONS: Final = 2
TOKENS_PER_REPETITION: Final = 8
TOKENS_PER_TOOL_CALL: Final = 8
TOKENS_PER_STRUCTURE: Final = 8
TOKENS_PER_MESSAGE: Final = 4
MODEL: Final = "farthing-benchecho"
DONE: Final = b"data: [DONE]\n\n"
RETRY_AFTER_S: Final = 30
TOOL_NAME: Final = "look_up"
TOOL_ARGUMENTS: Final = ('{"query": ', '"farthing"}')
STRUCTURE_PIECES: Final = 4
HTML_500: Final = (
    b"<html><head><title>500 Internal Server Error</title></head>"
    b"<body><h1>Internal Server Error</h1></body></html>"
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What benchecho reads of a request; it never looks at headers, so it keeps no credential."""

    model: str
    messages: list[Json]
    is_stream: bool
    include_usage: bool
    schema: Json | None = None
    user: str | None = None


class RequestRefusedError(Exception):
    """The words and the parameter of a 400."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


def read_request(body: bytes) -> ChatRequest:
    """Raise RequestRefusedError."""
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RequestRefusedError("the body is not JSON") from None
    if not isinstance(asked, dict):
        raise RequestRefusedError("the body is not a JSON object")
    model, messages = asked.get("model"), asked.get("messages")
    if not isinstance(model, str):
        raise RequestRefusedError("model is a string", "model")
    if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
        raise RequestRefusedError("messages is a list of objects", "messages")
    options = asked.get("stream_options")
    return ChatRequest(
        model=model,
        messages=messages,
        is_stream=asked.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        schema=_schema(asked.get("response_format")),
        user=user if isinstance(user := asked.get("user"), str) else None,
    )


def count_prompt_tokens(messages: list[Json]) -> int:
    words = sum(len(text.split()) for message in messages for text in _texts(message))
    return words + TOKENS_PER_MESSAGE * len(messages)


def count_completion_tokens(behaviour: Behaviour) -> int:
    if behaviour.output is Output.TOOL_CALL:
        return TOKENS_PER_TOOL_CALL
    if behaviour.output is Output.STRUCTURED:
        return TOKENS_PER_STRUCTURE
    return behaviour.repetitions * TOKENS_PER_REPETITION + _reasoning_tokens(behaviour)


def usage_of(request: ChatRequest, behaviour: Behaviour) -> Json | None:
    """The usage object as the behaviour would have it told."""
    if behaviour.usage is Usage.NONE:
        return None
    if behaviour.usage is Usage.ZERO:
        return _usage(0, 0)
    usage = _usage(count_prompt_tokens(request.messages), count_completion_tokens(behaviour))
    if reasoning_tokens := _reasoning_tokens(behaviour):
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return usage


def completion(request: ChatRequest, behaviour: Behaviour) -> bytes:
    """One `chat.completion` object."""
    message, finish_reason = _message(request, behaviour)
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    answer: Json = {"id": new_id(), "object": "chat.completion", "created": int(time.time())}
    answer |= {"model": MODEL, "choices": [choice]}
    if (usage := usage_of(request, behaviour)) is not None:
        answer["usage"] = usage
    return orjson.dumps(answer)


def events(request: ChatRequest, behaviour: Behaviour) -> tuple[bytes, list[bytes], bytes]:
    """The events of a stream: the first, the paced ones, and what ends it."""
    envelope: Json = {"id": new_id(), "object": "chat.completion.chunk"}
    envelope |= {"created": int(time.time()), "model": MODEL}
    if request.include_usage and behaviour.usage is not Usage.NONE:
        envelope["usage"] = None  # as OpenAI does in every chunk but the last
    opening = _event(envelope, {"role": "assistant", "content": ""})
    paced, finish_reason = _paced(envelope, request, behaviour)
    ending = _event(envelope, {}, finish_reason)
    if request.include_usage and (usage := usage_of(request, behaviour)) is not None:
        ending += b"data: %b\n\n" % orjson.dumps({**envelope, "choices": [], "usage": usage})
    if behaviour.fault is not Fault.NO_DONE:
        ending += DONE
    return opening, paced, ending


def error(message: str, kind: str, *, code: str | None = None, param: str | None = None) -> bytes:
    """OpenAI's error object."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def new_id() -> str:
    return f"chatcmpl-bench-{secrets.token_hex(4)}"


def _texts(message: Json) -> list[str]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]


def _reasoning_tokens(behaviour: Behaviour) -> int:
    is_reasoning = behaviour.output is Output.REASONING
    return REASONING_REPETITIONS * TOKENS_PER_REPETITION if is_reasoning else 0


def _usage(prompt_tokens: int, completion_tokens: int) -> Json:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _schema(asked: Any) -> Json | None:
    """Return the schema of a `response_format`, where one is asked for."""
    wrapper = asked.get("json_schema") if isinstance(asked, dict) else None
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    return schema if isinstance(schema, dict) else None


def _pieces(request: ChatRequest, behaviour: Behaviour) -> list[str]:
    """Return the text of the answer as a stream has it."""
    if behaviour.output is not Output.STRUCTURED:
        return [PHRASE] * behaviour.repetitions
    text = orjson.dumps({} if request.schema is None else example(request.schema)).decode()
    size = -(-len(text) // STRUCTURE_PIECES)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _message(request: ChatRequest, behaviour: Behaviour) -> tuple[Json, str]:
    if behaviour.output is Output.TOOL_CALL:
        call = _tool_call("".join(TOOL_ARGUMENTS))
        return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    message: Json = {"role": "assistant", "content": "".join(_pieces(request, behaviour))}
    if behaviour.output is Output.REASONING:
        message["reasoning_content"] = PHRASE * REASONING_REPETITIONS
    return message, "stop"


def _tool_call(arguments: str) -> Json:
    function = {"name": TOOL_NAME, "arguments": arguments}
    return {"id": f"call_{secrets.token_hex(4)}", "type": "function", "function": function}


def _paced(envelope: Json, request: ChatRequest, behaviour: Behaviour) -> tuple[list[bytes], str]:
    if behaviour.output is Output.TOOL_CALL:
        opened = {"index": 0, **_tool_call("")}
        grown = [{"index": 0, "function": {"arguments": piece}} for piece in TOOL_ARGUMENTS]
        calls = (opened, *grown)
        return [_event(envelope, {"tool_calls": [call]}) for call in calls], "tool_calls"
    thoughts = REASONING_REPETITIONS if behaviour.output is Output.REASONING else 0
    thought = _event(envelope, {"reasoning_content": PHRASE})
    pieces = _pieces(request, behaviour)
    said = {piece: _event(envelope, {"content": piece}) for piece in set(pieces)}
    return [thought] * thoughts + [said[piece] for piece in pieces], "stop"


def _event(envelope: Json, delta: Json, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: %b\n\n" % orjson.dumps({**envelope, "choices": [choice]})
