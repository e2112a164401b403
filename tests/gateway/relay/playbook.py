"""Vendor bytes in, client bytes out: what the relay's tests are written with."""

import json
from dataclasses import dataclass
from typing import Any

from gateway.relay.answer import AnswerRelay
from gateway.relay.failures import Fault

ID = "chatcmpl-ours"
MODEL = "alias-m"
SSE = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json")]


@dataclass(frozen=True)
class Told:
    """What one attempt came to, as the client and the settlement see it."""

    out: bytes
    failure: tuple | None
    facts: tuple


def relay(*, stream: bool = True, usage: bool = False, **settings: Any) -> AnswerRelay:
    return AnswerRelay(
        client_streams=stream,
        client_wants_usage=usage,
        completion_id=ID,
        model=MODEL,
        vendor_model="vendor-m",
        hidden=("acme", "api.acme.example"),
        **settings,
    )


def run(
    answer: AnswerRelay,
    *reads: bytes,
    status: int = 200,
    headers: list[tuple[bytes, bytes]] = SSE,
    fault: Fault | None = None,
) -> bytes:
    """Play an answer through to its end and return all that the client gets."""
    answer.receive_head(status, headers)
    out = b"".join(map(answer.receive, reads))
    out += answer.receive_end() if fault is None else answer.receive_fault(fault)
    return out + answer.closing()


def told(answer: AnswerRelay, out: bytes) -> Told:
    failed = answer.failure or answer.mid_stream_failure
    failure = failed and (
        failed.error.status,
        failed.error.code,
        failed.vendor_message,
        failed.may_try_next,
        failed.may_have_billed,
    )
    facts = (
        answer.complete,
        answer.ended,
        answer.sent_any,
        answer.has_output,
        answer.finish_reason,
        answer.vendor_id,
        answer.vendor_model,
        answer.raw_usage,
        answer.event_count,
        answer.skipped_events,
    )
    return Told(out, failure, facts)


def chunk(content: str | None = None, *, finish: str | None = None, **changes: Any) -> dict:
    delta = {} if content is None else {"content": content}
    return {
        "id": "chatcmpl-v1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "vendor-m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **changes,
    }


def delta(fields: dict | None, **choice: Any) -> dict:
    return chunk(choices=[{"index": 0, "delta": fields, "finish_reason": None, **choice}])


def usage_chunk(prompt: int, completion: int) -> dict:
    return chunk(choices=[], usage=counts(prompt, completion))


def counts(prompt: int, completion: int) -> dict:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


ROLE = delta({"role": "assistant", "content": ""})
STOP = chunk(finish="stop")
DONE = b"data: [DONE]\n\n"


def event(value: Any, *, end: bytes = b"\n\n", lead: bytes = b"data: ") -> bytes:
    return lead + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + end


def events(*values: Any, **spelling: bytes) -> bytes:
    return b"".join(event(value, **spelling) for value in values)


def completion(content: str | None = "Hello", **changes: Any) -> dict:
    message = {"role": "assistant", "content": content}
    return {
        "id": "chatcmpl-v1",
        "object": "chat.completion",
        "created": 1,
        "model": "vendor-m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        **changes,
    }


def body(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def ours(value: dict) -> dict:
    """Return a vendor's chunk or completion as the client gets it."""
    return {**value, "id": ID, "model": MODEL}


def client_values(out: bytes) -> list[Any]:
    """Return the client's events as values; every event must be strict JSON or the end mark."""
    assert out.endswith(b"\n\n")
    assert b"\r" not in out
    values = []
    for line in out[:-2].split(b"\n\n"):
        assert line.startswith(b"data: "), line
        text = line.removeprefix(b"data: ")
        values.append("[DONE]" if text == b"[DONE]" else json.loads(text, parse_constant=_refuse))
    return values


def text_of(out: bytes, index: int = 0) -> str:
    chunks = [value for value in client_values(out) if "choices" in value]
    return "".join(
        (choice.get("delta") or {}).get("content") or ""
        for value in chunks
        for choice in value["choices"]
        if choice["index"] == index
    )


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not legal JSON")


HELLO = events(ROLE, chunk("Hel"), chunk("lo"), STOP)
