"""Which call of a tool a piece belongs to, where a vendor does not say, or says one of several.

Clients put pieces together by their `index`. Gemini's dialect has had none, and 0 for every call;
other vendors give each piece of one call an id of its own.
"""

from typing import Any

JsonObject = dict[str, Any]

MAX_CALLS = 1_024
"""Of one choice that are told apart; the pieces of more pass as they are."""
MAX_ID_CHARS = 64


class CallNumbers:
    """The numbers of one choice's calls, as its pieces come."""

    __slots__ = ("_by_index", "_ids", "_last")

    def __init__(self) -> None:
        self._by_index: dict[int, int] = {}
        self._ids: dict[int, str] = {}
        self._last = 0

    def numbered(self, choice: JsonObject) -> JsonObject:
        """Return the choice of a chunk with an index at each piece: itself where all are right."""
        delta = choice.get("delta")
        calls = delta.get("tool_calls") if isinstance(delta, dict) else None
        if not isinstance(delta, dict) or not isinstance(calls, list) or not calls:
            return choice
        wanted = [self._numbered(call) if isinstance(call, dict) else call for call in calls]
        if all(new is old for new, old in zip(wanted, calls, strict=True)):
            return choice
        return {**choice, "delta": {**delta, "tool_calls": wanted}}

    def _numbered(self, call: JsonObject) -> JsonObject:
        if len(self._ids) >= MAX_CALLS:
            return call
        index, call_id = call.get("index"), _id_of(call)
        if type(index) is int:
            number = self._by_index.get(index, index)
            is_another = call_id not in ("", self._ids.get(number) or call_id)
            if number in self._ids and is_another and _is_named(call):
                number = self._next()
            self._by_index[index] = number
        elif call_id:
            number = self._last if self._ids.get(self._last) == call_id else self._next()
        else:
            number = self._next() if _is_named(call) else self._last
        self._ids[number] = self._ids.get(number) or call_id
        self._last = number
        return call if type(index) is int and index == number else {**call, "index": number}

    def _next(self) -> int:
        return max(self._ids, default=-1) + 1


def _id_of(call: JsonObject) -> str:
    call_id = call.get("id")
    return call_id[:MAX_ID_CHARS] if isinstance(call_id, str) else ""


def _is_named(call: JsonObject) -> bool:
    function = call.get("function")
    return isinstance(function, dict) and bool(function.get("name"))
