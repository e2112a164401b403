"""A client that writes its request by hand, so that it can be wrong, and notes what came when."""

import http.client
import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 30.0
PIECE_BYTES = 65_536


@dataclass(slots=True)
class Got:
    """An answer, read to its end; `pieces` are its bytes with the seconds since the request."""

    status: int
    headers: dict[str, str]
    pieces: list[tuple[float, bytes]]
    seconds: float

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def json(self) -> Any:
        return json.loads(self.body, parse_constant=_no_constant)

    def events(self) -> list[Any]:
        """The data of the events, decoded; the end mark as the text it is."""
        lines = [line for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        texts = [line.removeprefix(b"data: ") for line in lines]
        return [
            "[DONE]" if text == b"[DONE]" else json.loads(text, parse_constant=_no_constant)
            for text in texts
        ]

    def chunks(self) -> list[dict[str, Any]]:
        return [value for value in self.events() if isinstance(value, dict) and "choices" in value]

    def text(self, index: int = 0) -> str:
        if not self.is_stream:
            return self.json()["choices"][index]["message"]["content"]
        return "".join(
            (choice.get("delta") or {}).get("content") or ""
            for chunk in self.chunks()
            for choice in chunk["choices"]
            if choice["index"] == index
        )

    def seconds_to(self, words: bytes) -> float:
        """When the piece with these bytes came."""
        return next(at for at, piece in self.pieces if words in piece)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def ask(
    base_url: str,
    body: bytes,
    headers: Sequence[tuple[str, str]],
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
) -> Got:
    """Send one request and read its answer to the end. Header texts go out as Latin-1."""
    begun_s = time.monotonic()
    with open_call(base_url, body, headers, method=method, path=path) as wire:
        answer = http.client.HTTPResponse(wire, method=method)
        answer.begin()
        pieces = []
        while piece := answer.read1(PIECE_BYTES):
            pieces.append((time.monotonic() - begun_s, piece))
        found = {name.lower(): value for name, value in answer.getheaders()}
    return Got(answer.status, found, pieces, time.monotonic() - begun_s)


def open_call(
    base_url: str,
    body: bytes,
    headers: Sequence[tuple[str, str]],
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    window_bytes: int | None = None,
) -> socket.socket:
    """Send one request; the caller reads as much as it likes and closes.

    `window_bytes` is how much the system takes in for a caller that does not read.
    """
    address = urlsplit(base_url)
    wire = socket.socket()
    wire.settimeout(PATIENCE_S)
    if window_bytes is not None:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
    wire.connect((address.hostname, address.port))
    lines = [f"{method} {path} HTTP/1.1", f"Host: {address.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    head = "".join(f"{line}\r\n" for line in (*lines, ""))
    wire.sendall(head.encode("latin-1") + (body if method == "POST" else b""))
    return wire
