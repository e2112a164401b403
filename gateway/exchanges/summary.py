"""An exchange in four lines: what stood before, what was asked, what was answered, why it ended."""

from typing import Any

SUMMARY_CHARS = 150
MAX_TOOL_CALLS = 20

# Tuples: a role may be any JSON value, also one that has no hash.
SYSTEM_ROLES = ("system", "developer")
TOOL_ROLES = ("tool", "function")
TOOL_RESULT = "tool_result"

JsonObject = dict[str, Any]


def summarise(request: Any, completion: Any) -> JsonObject:
    """Return the summary of a request and of the `chat.completion` that answered it, if one did.

    Total on every JSON value. Both must be masked already; nothing here looks for secrets.
    `history_count` counts the messages of the conversation, the last one included and those of
    the system left out. What the user said is the turn since the assistant spoke last.
    """
    messages = _objects(request.get("messages") if isinstance(request, dict) else None)
    conversation = [message for message in messages if message.get("role") not in SYSTEM_ROLES]
    system = next((m for m in messages if m.get("role") in SYSTEM_ROLES), None)
    return {
        "system_prefix": None if system is None else _text(system.get("content")),
        "history_count": len(conversation),
        "user_summary": _user_summary(_last_turn(conversation)),
        "assistant_summary": _assistant_summary(completion),
    }


def has_image(part: JsonObject) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and "image" in kind


def _last_turn(conversation: list[JsonObject]) -> list[JsonObject]:
    end = len(conversation)
    while end and conversation[end - 1].get("role") == "assistant":
        end -= 1
    start = end
    while start and conversation[start - 1].get("role") != "assistant":
        start -= 1
    return conversation[start:end]


def _user_summary(turn: list[JsonObject]) -> JsonObject:
    parts = [part for message in turn for part in _objects(message.get("content"))]
    said = [message for message in turn if message.get("role") not in TOOL_ROLES] or turn
    return {
        "text": _text(said[-1].get("content")) if said else "",
        "has_image": any(map(has_image, parts)),
        "has_tool_result": any(message.get("role") in TOOL_ROLES for message in turn)
        or any(part.get("type") == TOOL_RESULT for part in parts),
    }


def _assistant_summary(completion: Any) -> JsonObject:
    choices = _objects(completion.get("choices") if isinstance(completion, dict) else None)
    choice = choices[0] if choices else {}
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    reason = choice.get("finish_reason")
    return {
        "text": _text(message.get("content")) or _text(message.get("refusal")),
        "tool_calls": [_call(call) for call in _objects(message.get("tool_calls"))][
            :MAX_TOOL_CALLS
        ],
        "stop_reason": reason if isinstance(reason, str) else None,
    }


def _call(call: JsonObject) -> JsonObject:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    return {"name": _text(function.get("name")), "arguments": _text(function.get("arguments"))}


def _text(content: Any) -> str:
    """Return the first `SUMMARY_CHARS` of a content that is a text or a list of parts."""
    if isinstance(content, str):
        return content[:SUMMARY_CHARS]
    texts: list[str] = []
    length = 0
    for part in content if isinstance(content, list) else ():
        text = part if isinstance(part, str) else part.get("text") if _is_object(part) else None
        if isinstance(text, str) and text:
            texts.append(text[:SUMMARY_CHARS])
            length += len(texts[-1]) + 1
        if length > SUMMARY_CHARS:
            break
    return "\n".join(texts)[:SUMMARY_CHARS]


def _objects(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
