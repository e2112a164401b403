"""What a vendor of a case sends: bytes, in pieces, with the pauses and the end that it wants."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.raw_vendor import Call, RawVendor

JSON = "application/json"
EVENTS = "text/event-stream"
VENDOR_MODEL = "vendor-m"
DONE = b"data: [DONE]\n\n"

End = Literal["whole", "cut", "reset", "silence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. Each piece goes out on its own, as one chunk of the chunked coding.

    `framing` "length" counts the body, "close" ends it with the connection, and "none" leaves
    head and body to the pieces. `end` is what comes after the last piece: the proper end, a
    connection that is closed or reset before it, or nothing for as long as the caller stays.
    """

    pieces: Sequence[bytes] = ()
    label: str | None = JSON
    status: str = "200 OK"
    headers: tuple[str, ...] = ()
    framing: Literal["chunked", "length", "close", "none"] = "chunked"
    end: End = "whole"
    before_head_s: float = 0.0
    before_first_s: float = 0.0
    between_s: float = 0.0
    times: int = 1

    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status}", *self.headers, "Connection: close"]
        if self.label is not None:
            lines.append(f"Content-Type: {self.label}")
        if self.framing == "chunked":
            lines.append("Transfer-Encoding: chunked")
        if self.framing == "length":
            lines.append(f"Content-Length: {sum(map(len, self.pieces)) * self.times}")
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1")

    def play(self, call: Call) -> None:
        _wait(call, self.before_head_s)
        if self.framing != "none":
            call.send(self.head())
        _wait(call, self.before_first_s)
        for _ in range(self.times):
            self._send_pieces(call)
        self._finish(call)

    def _send_pieces(self, call: Call) -> None:
        for number, piece in enumerate(self.pieces):
            if number:
                _wait(call, self.between_s)
            if piece and self.framing == "chunked":
                call.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            elif piece:
                call.send(piece)

    def _finish(self, call: Call) -> None:
        if self.end == "silence":
            call.wait_until_left()
        elif self.end == "reset":
            _wait(call, 0.05)  # what was sent shall be read before the reset
            call.reset()
        elif self.end == "whole" and self.framing == "chunked":
            call.send(b"0\r\n\r\n")


def _wait(call: Call, seconds: float) -> None:
    if seconds:
        call.pause(seconds)


def event(fields: Any, *, end: bytes = b"\n\n", lead: bytes = b"data: ") -> bytes:
    return lead + json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + end


def chunk(*choices: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-v1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": VENDOR_MODEL,
        "choices": list(choices),
        **fields,
    }


def delta(fields: Any, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    return chunk({"index": index, "delta": fields, "finish_reason": finish}, **more)


def counts(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        **details,
    }


ROLE = delta({"role": "assistant", "content": ""})
STOP = delta({}, "stop")


def text(content: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return delta({"content": content}, finish, **more)


def usage(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    return chunk(usage=counts(prompt, completion, **details))


def stream(*values: Any, done: bool = True, **how: Any) -> Answer:
    """Events of JSON values; bytes among them go out as they are."""
    pieces = [value if isinstance(value, bytes) else event(value) for value in values]
    how = {"label": EVENTS, **how}
    return Answer(pieces=(*pieces, DONE) if done else pieces, **how)


def completion(content: Any = "Hello", *, tokens: Any = None, **fields: Any) -> dict[str, Any]:
    """`tokens` is the usage object: None leaves it out."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {**chunk(choice), "object": "chat.completion"}
    return {**body, **({} if tokens is None else {"usage": tokens}), **fields}


def whole(value: Any, **how: Any) -> Answer:
    """One body: a JSON value, or bytes as they are."""
    body = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    return Answer(pieces=[body], **how)


HELLO = whole(completion(tokens=counts(10, 5)))


class CaseVendor(RawVendor):
    """Answers each case by its own list: the last one answers all further calls."""

    def __init__(self) -> None:
        super().__init__({})
        self._answers: dict[str, Sequence[Answer]] = {}
        self._called: dict[str, list[Call]] = {}

    def put_on(self, name: str, answers: Sequence[Answer]) -> None:
        self._answers[name] = answers
        self._called[name] = []

    def heard(self, name: str) -> list[Call]:
        return list(self._called[name])

    def script_of(self, call: Call) -> Any:
        name = call.path.split("/")[1]
        answers, called = self._answers[name], self._called[name]
        with self._lock:
            called.append(call)
            number = len(called) - 1
        return answers[min(number, len(answers) - 1)].play
