"""An answer that came as one body: what it says, and how the client gets it."""

from typing import Any

from gateway.relay.assemble import Fold
from gateway.relay.failures import VendorError, read_error
from gateway.relay.json_text import decode, decode_run, encode, replace_identity, unwrapped
from gateway.relay.sse import DONE_TEXT, read_events
from gateway.relay.stream import Wish, tidied

MAX_ERROR_BODY_BYTES = 64 * 1024
"""Of a body under an error status, or one that is no answer; the rest is not kept."""

JsonObject = dict[str, Any]


def json_or_none(text: bytes) -> Any:
    """Decode one body, also one with the end mark of a stream behind it."""
    if text.endswith(DONE_TEXT):
        text = text.removesuffix(DONE_TEXT).rstrip().removesuffix(b"data:")
    try:
        return unwrapped(decode(text))
    except ValueError:
        return None


def flaw_of(value: Any, text: bytes) -> str | None:
    """Say for staff why this is no completion; None where it is one."""
    if not isinstance(value, dict):
        return staff_text(text) or "empty answer"
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices:
        return "no choices: " + staff_text(text)
    if not all(map(_is_choice, choices)):
        return "malformed choices: " + staff_text(text)
    return None


def lines_of(value: Any, text: bytes) -> bytes | None:
    """Return what came as one body as the lines of a stream, where that is what it is.

    Some vendors write the objects of a stream one a line, or one behind the other, others all of
    them in one list. What follows them and is none has a line of its own.
    """
    rest = b""
    if value is None:
        found, rest = decode_run(text)
        value = found or None
    if not isinstance(value, list):
        return None
    return b"\n".join((*map(encode, value), rest, b"", b""))


def _is_choice(choice: Any) -> bool:
    """Say whether it is an object whose message, if there is one, is an object too."""
    return isinstance(choice, dict) and isinstance(choice.get("message") or {}, dict)


def whole(completion: JsonObject) -> JsonObject:
    """Return a completion, also where it was written as one chunk of a stream."""
    if all(isinstance(choice.get("message"), dict) for choice in completion["choices"]):
        return completion
    folded = Fold()
    folded.add(completion)
    return folded.completion()


def said_by(text: bytes) -> tuple[VendorError, JsonObject]:
    """Return what a body under an error status says, and the object that says it."""
    value = json_or_none(text)
    if value is None:
        value = next(read_events(text), None)
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        return read_error(value.get("error") or value), value
    return VendorError(message=staff_text(text)), {}


def client_body(completion: JsonObject, text: bytes, wish: Wish, usage: JsonObject | None) -> bytes:
    """Return a completion under the client's names.

    `text` is what the vendor sent, b"" where it sent a stream: its bytes are kept wherever only
    names differ. `usage` replaces the vendor's, unless None.
    """
    names = {"id": wish.completion_id, "model": wish.model}
    choices = [tidied(choice, keep_usage=True) for choice in completion["choices"]]
    if usage is None and text and choices == completion["choices"]:
        out = replace_identity(text, completion, **names)
        if out is not None:
            return out
    wanted = {**completion, **names, "choices": choices}
    if usage is not None:
        wanted["usage"] = usage
    return encode(wanted)


def staff_text(text: bytes) -> str:
    return text[:MAX_ERROR_BODY_BYTES].decode("utf-8", "replace")
