"""A body as what was said by whom. Total on every JSON value: it may have come from anyone."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.exchanges.legs import Leg, LegsView

TEXT_CHARS = 20_000
"""Of one message on a page; the JSON view has it whole."""
HISTORY_MAX = 200
SYSTEM_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `notes` name what is no text: calls of tools, images, how it ended."""

    role: str
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chat:
    """What stands before the history, the history, and what was said last."""

    system: tuple[Turn, ...]
    history: tuple[Turn, ...]
    last: tuple[Turn, ...]

    @property
    def history_words(self) -> str:
        tools = sum(turn.role in {"tool", "function"} for turn in self.history)
        words = f"{len(self.history):,} message{'s' if len(self.history) != 1 else ''}"
        if tools:
            words += f", {tools:,} tool result{'s' if tools != 1 else ''}"
        return words


def chat_of(leg: Leg) -> Chat | None:
    """None where the body is no chat."""
    body = leg.body
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("messages"), list):
        return _request(body["messages"])
    if isinstance(body.get("choices"), list):
        return Chat((), (), tuple(_choices(body["choices"])))
    return None


def summary_chat(view: LegsView, number: int) -> Chat | None:
    """What is kept where only summaries are: of the client's request, or of the answer."""
    summary = view.summary
    if summary is None:
        return None
    if number > 2:  # noqa: PLR2004  # ③ and ④ are answers
        said = summary.get("assistant_summary") or {}
        calls = [f"calls {call.get('name')}" for call in _objects(said.get("tool_calls"))]
        return Chat((), (), (Turn("assistant", _cut(said.get("text")), tuple(calls)),))
    system = _cut(summary.get("system_prefix"))
    user = summary.get("user_summary") or {}
    notes = [word for name, word in _USER_NOTES.items() if user.get(name)]
    notes.append(f"{summary.get('history_count', 0)} messages in all")
    return Chat(
        (Turn("system", system),) if system else (),
        (),
        (Turn("user", _cut(user.get("text")), tuple(notes)),),
    )


_USER_NOTES = {"has_image": "with an image", "has_tool_result": "with a tool result"}


def _request(messages: list[Any]) -> Chat:
    turns = [_turn(message) for message in _objects(messages)]
    system = tuple(turn for turn in turns if turn.role in SYSTEM_ROLES)
    others = [turn for turn in turns if turn.role not in SYSTEM_ROLES]
    return Chat(system, tuple(others[:-1][-HISTORY_MAX:]), tuple(others[-1:]))


def _choices(choices: list[Any]) -> Iterator[Turn]:
    for choice in _objects(choices):
        message = choice.get("message")
        turn = _turn(message if isinstance(message, dict) else {})
        reason = choice.get("finish_reason")
        ended = (f"ended by {reason}",) if isinstance(reason, str) else ()
        yield Turn(turn.role if turn.role != "?" else "assistant", turn.text, turn.notes + ended)


def _turn(message: dict[str, Any]) -> Turn:
    role = message.get("role")
    content = message.get("content")
    texts = list(_texts(content))
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    notes = [*_parts(content), *_calls(message)]
    if isinstance(reasoning, str) and reasoning:
        notes.append(f"reasoning: {reasoning[:TEXT_CHARS]}")
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        texts.append(refusal)
    return Turn(role if isinstance(role, str) else "?", _cut("\n".join(texts)), tuple(notes))


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in _objects(content):
        if isinstance(part.get("text"), str):
            yield part["text"]


def _parts(content: Any) -> Iterator[str]:
    for part in _objects(content):
        if not isinstance(part.get("text"), str):
            yield f"a part of type {part.get('type', '?')}"


def _calls(message: dict[str, Any]) -> Iterator[str]:
    for call in _objects(message.get("tool_calls")):
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments")
        shown = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        )
        yield f"calls {function.get('name', '?')}({shown[:TEXT_CHARS]})"


def _cut(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    return text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}…"


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
