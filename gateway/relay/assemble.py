"""Between the two forms of an answer: chunks of a stream, and one completion."""

from collections.abc import Iterable, Iterator
from typing import Any

from gateway.relay.calls import CallNumbers

JsonObject = dict[str, Any]

CHUNK = "chat.completion.chunk"
COMPLETION = "chat.completion"

JOINED_TEXTS = frozenset(
    {
        "arguments",
        "content",
        "data",
        "reasoning",
        "reasoning_content",
        "refusal",
        "summary",
        "text",
        "thinking",
        "transcript",
    }
)
"""Texts that come in pieces; any other value that comes again replaces the one before."""
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
OUTPUT_FIELDS = ("content", "tool_calls", "refusal", "function_call", "audio", *REASONING_FIELDS)
MAX_MERGE_DEPTH = 8
"""Below this, a value that comes again replaces the one before it."""
MAX_CHOICES = 128
"""Of one answer; a client may not ask for more."""
SHARED_FIELDS = ("id", "created", "model", "system_fingerprint", "service_tier")


class Fold:
    """Chunks put together as they come; holds the text once, however many chunks it came in."""

    __slots__ = ("_choices", "_top")

    def __init__(self) -> None:
        self._top: JsonObject = {}
        self._choices: dict[int, _Choice] = {}

    def add(self, chunk: JsonObject) -> None:
        for name, value in chunk.items():
            if name != "choices" and (value not in (None, "") or name not in self._top):
                self._top[name] = value
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                index = index_of(choice)
                self._choices.setdefault(index, _Choice(index)).add(choice)

    def completion(self) -> JsonObject:
        """Return what came so far as a `chat.completion`."""
        top = {**self._top, "object": COMPLETION}
        usage = top.pop("usage", None)
        top["choices"] = [self._choices[index].finished() for index in sorted(self._choices)]
        if usage is not None:
            top["usage"] = usage
        return top


def fold(chunks: Iterable[Any]) -> JsonObject:
    """Put the chunks of a stream together into one `chat.completion`."""
    folded = Fold()
    for chunk in chunks:
        if isinstance(chunk, dict):
            folded.add(chunk)
    return folded.completion()


def split(completion: JsonObject, *, include_usage: bool = False) -> Iterator[JsonObject]:
    """Yield the chunks of a stream that folds back into the completion."""
    shared = {name: completion[name] for name in SHARED_FIELDS if name in completion}
    shared["object"] = CHUNK
    own = {*SHARED_FIELDS, "object", "choices", "usage"}
    extras = {name: value for name, value in completion.items() if name not in own}
    for choice in completion["choices"]:
        for piece in _pieces(choice):
            yield {**shared, **extras, "choices": [piece]}
            extras = {}
    if include_usage and completion.get("usage") is not None:
        yield {**shared, "choices": [], "usage": completion["usage"]}


def has_output(choice: JsonObject) -> bool:
    """Say whether a choice of a chunk or completion carries anything a model produced."""
    message = choice.get("delta") or choice.get("message")
    if not isinstance(message, dict):
        return bool(choice.get("text"))
    return any(message.get(name) for name in OUTPUT_FIELDS)


def mended(value: JsonObject) -> JsonObject:
    """Return a chunk or completion with a list of choices, and objects as their deltas.

    Some vendors write the one choice without its list, or a delta's text without its object.
    """
    choices = value.get("choices")
    if isinstance(choices, list):
        for choice in choices:
            if isinstance(choice, dict) and isinstance(choice.get("delta"), str):
                break
        else:
            return value
    elif isinstance(choices, dict):
        choices = [choices]
    else:
        return value
    return {**value, "choices": [_with_delta(choice) for choice in choices]}


def is_whole(choice: Any) -> bool:
    """Say whether a chunk's choice is one of a completion: some vendors send one in one event."""
    if not isinstance(choice, dict) or not choice.get("message") or choice.get("delta"):
        return False
    return isinstance(choice["message"], dict)


def index_of(entry: JsonObject) -> int:
    """Return the choice that an entry belongs to: the first, where it names none that can be."""
    index = entry.get("index")
    return index if type(index) is int and 0 <= index < MAX_CHOICES else 0


class _Choice:
    __slots__ = ("_calls", "_fields", "_has_deltas", "_index", "_message")

    def __init__(self, index: int) -> None:
        self._index = index
        self._fields = _Object()
        self._has_deltas = False
        self._calls = CallNumbers()
        self._message = _Object(role="assistant", content=None)

    def add(self, choice: JsonObject) -> None:
        """Add what is new: a message beside deltas, or behind them, says the same once more."""
        choice = self._calls.numbered(choice)
        for name, value in choice.items():
            if name == "delta":
                if isinstance(value, dict) and value:
                    _merge(self._message, value)
                    self._has_deltas = self._has_deltas or has_output(choice)
            elif name == "message":
                if is_whole(choice) and not self._has_deltas:
                    _merge(self._message, value)
            elif name == "text" and isinstance(value, str):
                _merge(self._message, {"content": value})
            elif name == "logprobs":
                _merge(self._fields, {name: value})
            elif name != "index":
                _replace(self._fields, name, value)

    def finished(self) -> JsonObject:
        message = _joined(self._message)
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            message["tool_calls"] = [_without_index(call) for call in calls]
        fields = _joined(self._fields)
        reason = fields.pop("finish_reason", None) or None
        return {"index": self._index, "message": message, **fields, "finish_reason": reason}


class _Object(dict[str, Any]):
    """An object that is being put together."""


class _Pieces(list[str]):
    """A text that is being put together: a list, since adding to a string copies it each time."""


class _Entries(list[Any]):
    """A list that is being put together, with its entries by their `index`."""

    def __init__(self) -> None:
        super().__init__()
        self.by_index: dict[int, _Object] = {}


def _merge(target: JsonObject, delta: JsonObject, depth: int = 0) -> None:
    for name, value in delta.items():
        held = target.get(name)
        if isinstance(value, str) and name in JOINED_TEXTS:
            if not isinstance(held, _Pieces):
                held = target[name] = _Pieces()
            held.append(value)
        elif isinstance(value, list) and depth < MAX_MERGE_DEPTH:
            if not isinstance(held, _Entries):
                held = target[name] = _Entries()
            _merge_list(held, value, depth + 1)
        elif isinstance(value, dict) and depth < MAX_MERGE_DEPTH:
            if not isinstance(held, _Object):
                held = target[name] = _Object()
            _merge(held, value, depth + 1)
        else:
            _replace(target, name, value)


def _merge_list(entries: _Entries, more: list[Any], depth: int) -> None:
    for value in more:
        if not isinstance(value, dict) or not ("index" in value or "function" in value):
            entries.append(value)
            continue
        entry = _entry_for(entries, value)
        if entry is None:
            entry = _Object()
            entries.append(entry)
            if type(value.get("index")) is int:
                entries.by_index[value["index"]] = entry
        _merge(entry, value, depth)


def _entry_for(entries: _Entries, value: JsonObject) -> _Object | None:
    """Return the entry that `value` continues; without an index, a new id starts a new one."""
    index = value.get("index")
    if type(index) is int:
        return entries.by_index.get(index)
    last = entries[-1] if entries else None
    if isinstance(last, _Object) and value.get("id") in (None, "", last.get("id")):
        return last
    return None


def _replace(target: JsonObject, name: str, value: Any) -> None:
    """Set a value; null and "" say nothing about one that came before."""
    if name not in target or not (value is None or value == ""):
        target[name] = value


def _with_delta(choice: Any) -> Any:
    delta = choice.get("delta") if isinstance(choice, dict) else None
    return {**choice, "delta": {"content": delta}} if isinstance(delta, str) else choice


def _joined(value: Any) -> Any:
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, _Object):
        return {name: _joined(held) for name, held in value.items()}
    if isinstance(value, _Entries):
        return [_joined(held) for held in value]
    return value


def _without_index(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    return {name: value for name, value in call.items() if name != "index"}


def _pieces(choice: JsonObject) -> Iterator[JsonObject]:
    """Yield one choice of a completion as choices of chunks: role, thinking, answer, finish."""
    index = index_of(choice)
    message = choice.get("message")
    message = dict(message) if isinstance(message, dict) else {}
    yield _piece(index, {"role": message.pop("role", None) or "assistant", "content": ""})
    thinking = {name: message.pop(name) for name in REASONING_FIELDS if message.get(name)}
    if thinking:
        yield _piece(index, thinking)
    calls = message.pop("tool_calls", None)
    if isinstance(calls, list) and calls:
        message["tool_calls"] = [_indexed(call, at) for at, call in enumerate(calls)]
    delta = {name: value for name, value in message.items() if value is not None}
    logprobs = choice.get("logprobs")
    if delta or logprobs:
        piece = _piece(index, delta)
        yield piece if logprobs is None else {**piece, "logprobs": logprobs}
    own = {"index", "message", "logprobs", "finish_reason"}
    extras = {name: value for name, value in choice.items() if name not in own}
    yield {**_piece(index, {}), **extras, "finish_reason": choice.get("finish_reason") or None}


def _piece(index: int, delta: JsonObject) -> JsonObject:
    return {"index": index, "delta": delta, "finish_reason": None}


def _indexed(call: Any, at: int) -> Any:
    return {"index": at, **call} if isinstance(call, dict) else call
