"""A vendor of raw sockets: what it sends, and when, is written byte by byte in a script.

The vendor's model in a request names the script. Scripts run in threads and wait by events, so a
test decides when a vendor speaks, and sees when it was left.
"""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 20.0
RESET = struct.pack("ii", 1, 0)
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def chunk(content: str | None = None, *, finish: str | None = None) -> bytes:
    delta: dict[str, Any] = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"choices": [choice]})


def usage_chunk(usage: dict[str, int] | None = None) -> bytes:
    return event({"choices": [], "usage": usage or USAGE})


def event(fields: dict[str, Any]) -> bytes:
    body = {"id": "chatcmpl-v1", "object": "chat.completion.chunk", "created": 1, "model": "v"}
    return b"data: %b\n\n" % json.dumps({**body, **fields}).encode()


DONE = b"data: [DONE]\n\n"
ENDING = chunk(finish="stop") + usage_chunk() + DONE
WHOLE = json.dumps(
    {
        "id": "chatcmpl-v1",
        "object": "chat.completion",
        "created": 1,
        "model": "v",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello"},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }
).encode()


@dataclass
class Call:
    """One request as it came, and the socket to answer on."""

    head: bytes
    body: bytes
    vendor: "RawVendor"
    wire: socket.socket
    sent_bytes: int = 0
    left: threading.Event = field(default_factory=threading.Event)

    @property
    def payload(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.split(": ", 1) for line in lines if line)
        return {name.lower(): value for name, value in pairs}

    @property
    def path(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    def send(self, data: bytes) -> None:
        self.wire.sendall(data)
        self.sent_bytes += len(data)

    def answer(self, body: bytes, *headers: str, status: str = "200 OK") -> None:
        lines = "".join(f"{line}\r\n" for line in ("Content-Type: application/json", *headers))
        head = f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(body)}\r\n"
        self.send(f"{head}Connection: close\r\n\r\n".encode() + body)

    def stream(self, *pieces: bytes) -> None:
        """Begin a stream that ends with the connection."""
        self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for piece in pieces:
            self.send(piece)

    def pause(self, seconds: float) -> None:
        """Say nothing for a while, or until the caller has left."""
        self.wire.settimeout(seconds)
        with contextlib.suppress(TimeoutError, OSError):
            self.wire.recv(1)
            self.left.set()
        self.wire.settimeout(PATIENCE_S)

    def wait_until_left(self) -> None:
        self.pause(PATIENCE_S)

    def reset(self) -> None:
        self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


Script = Callable[[Call], None]


class RawVendor:
    """`with RawVendor(scripts) as vendor`; `calls` are all that came, newest last."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self._scripts = scripts
        self._lock = threading.Lock()
        self.calls: list[Call] = []
        self.open_calls = 0
        self.go = threading.Event()  # scripts may wait for it

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.go.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def url(self, prefix: str) -> str:
        return f"http://127.0.0.1:{self.port}/{prefix}/v1"

    def calls_of(self, model: str) -> list[Call]:
        with self._lock:
            return [call for call in self.calls if call.payload["model"] == model]

    def script_of(self, call: Call) -> Script:
        return self._scripts[call.payload["model"]]

    def _accept(self) -> None:
        while True:
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: socket.socket) -> None:
        """One call a connection; it ends with the script."""
        wire.settimeout(PATIENCE_S)
        with contextlib.suppress(OSError), wire:
            request = _read(wire)
            if request is None:
                return
            call = Call(*request, self, wire)
            with self._lock:
                self.calls.append(call)
                self.open_calls += 1
            try:
                self.script_of(call)(call)
            finally:
                call.left.set()
                with self._lock:
                    self.open_calls -= 1


def _read(wire: socket.socket) -> tuple[bytes, bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = wire.recv(65_536)
        if not piece:
            return None
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    (length,) = (
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    while len(body) < length:
        body += wire.recv(65_536)
    return head, body
