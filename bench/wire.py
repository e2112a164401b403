"""The requests that the load generator sends, written down whole."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from gateway.supervisor.files import PRIVATE_FILE

PATH = "/v1/chat/completions"
FAST, PACED, SLOW = "bench-0", "bench-10", "bench-100"  # the number: ms between a stream's events
HELD = "bench-12000"  # a stream of ten minutes
MODELS = (FAST, PACED, SLOW, HELD)
EVENTS_PER_STREAM = 52
MESSAGES = [
    {
        "role": "system",
        "content": "You are a helpful assistant. Answer in one short sentence, in the language "
        "of the question.",
    },
    {"role": "user", "content": "Say hello, and tell me what you can do for me today."},
]


def body(model: str, *, stream: bool) -> bytes:
    content = {"model": model, "messages": MESSAGES, "max_tokens": 64}
    if stream:
        content |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(content, separators=(",", ":")).encode()


def request(key: str, content: bytes, extra: Mapping[str, str]) -> bytes:
    headers = {
        "host": "127.0.0.1",
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "accept": "application/json",
        "user-agent": "bench",
        **extra,
        "content-length": str(len(content)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {PATH} HTTP/1.1\r\n{lines}\r\n".encode() + content


def write(path: Path, requests: Iterable[bytes]) -> Path:
    """The load generator's file. It holds keys, so it is its owner's alone."""
    path.touch(mode=PRIVATE_FILE)
    with path.open("wb") as file:
        for whole in requests:
            file.write(b"%d\n%b" % (len(whole), whole))
    return path
