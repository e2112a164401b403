"""What is stored of an exchange: one row of `gateway_transcript`, masked before it exists.

Where bodies are stored, the summary is made of them when it is asked for (`summary_of`); it is
stored only where it is all that the tenant wants kept.

`Legs` is the one place that knows the shape of the row's `legs`. Times are milliseconds from the
arrival of the request, sizes are bytes as they went over the wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

from billing.storable import storable, storable_json
from gateway.exchanges.masking import (
    HeaderItems,
    mask_body,
    mask_headers,
    mask_text,
)
from gateway.exchanges.streams import mask_stream
from gateway.exchanges.summary import summarise
from gateway.relay.assemble import fold
from gateway.relay.capture import Capture, unpack
from gateway.relay.inflate import InflatedTooLargeError, InflateError, Inflater
from gateway.relay.json_text import decode
from gateway.relay.sse import read_events
from keys.models import TranscriptPolicy

MAX_STORED_BYTES = 16 * 1024 * 1024
"""Of one body, after decompression; of a larger one only the size is kept."""

JsonObject = dict[str, Any]
Row = tuple[UUID, int, JsonObject, JsonObject | None, bytes | None, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class ClientLeg:
    """① the client's request, as it arrived."""

    method: str
    path: str
    http_version: str
    address: str
    headers: HeaderItems = field(repr=False)
    size_bytes: int = 0

    def to_json(self) -> JsonObject:
        return {
            "method": self.method,
            "path": mask_text(self.path) if "?" in self.path else storable(self.path),
            "http_version": self.http_version,
            "address": self.address,
            "headers": mask_headers(self.headers),
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True, slots=True)
class VendorLeg:
    """② and ③ of one attempt. `response_at_ms` is its first byte; None where none came."""

    number: int
    vendor: str
    vendor_model: str
    url: str
    include_usage: bool
    headers: HeaderItems = field(repr=False)
    size_bytes: int = 0
    at_ms: float = 0.0
    status: int | None = None
    response_headers: HeaderItems = field(default=(), repr=False)
    response_at_ms: float | None = None
    response_size_bytes: int = 0
    sha256: str | None = None
    error: str | None = None

    def to_json(self) -> JsonObject:
        return {
            "number": self.number,
            "vendor": self.vendor,
            "vendor_model": self.vendor_model,
            "url": self.url,
            "include_usage": self.include_usage,
            "headers": mask_headers(self._sent_headers(), keeps_own_keys=False),
            "size_bytes": self.size_bytes,
            "at_ms": self.at_ms,
            "status": self.status,
            "response_headers": mask_headers(self.response_headers),
            "response_at_ms": self.response_at_ms,
            "response_size_bytes": self.response_size_bytes,
            "sha256": self.sha256,
            "error": None if self.error is None else mask_text(self.error),
        }

    def _sent_headers(self) -> HeaderItems:
        """Return the headers with Host, which the upstream client writes by itself."""
        if _value_of(self.headers, "host"):
            return self.headers
        return [*self.headers, ("Host", urlsplit(self.url).netloc)]


@dataclass(frozen=True, slots=True)
class AnswerLeg:
    """④ what the client got. `usage` is what closed the answer in place of the vendor's own."""

    status: int
    headers: HeaderItems = field(repr=False)
    at_ms: float = 0.0
    size_bytes: int = 0
    is_stream: bool = False
    wants_usage: bool = False
    usage: JsonObject | None = None

    def to_json(self) -> JsonObject:
        return {
            "status": self.status,
            "headers": mask_headers(self.headers),
            "at_ms": self.at_ms,
            "size_bytes": self.size_bytes,
            "is_stream": self.is_stream,
            "wants_usage": self.wants_usage,
            "usage": storable_json(self.usage),
        }


@dataclass(frozen=True, slots=True)
class Legs:
    """The four legs without their bodies. `answer` is None where the client left before one."""

    client: ClientLeg
    vendor: Sequence[VendorLeg] = ()
    answer: AnswerLeg | None = None
    policy: str = TranscriptPolicy.CONTENT.value

    def to_json(self) -> JsonObject:
        """Return a value that PostgreSQL takes, without secrets, whatever the legs hold."""
        return {
            "policy": self.policy,
            "client": self.client.to_json(),
            "vendor": [leg.to_json() for leg in self.vendor],
            "answer": None if self.answer is None else self.answer.to_json(),
        }

    @classmethod
    def from_json(cls, stored: JsonObject) -> "Legs":
        answer = stored.get("answer")
        return cls(
            client=ClientLeg(**stored["client"]),
            vendor=tuple(VendorLeg(**leg) for leg in stored["vendor"]),
            answer=None if answer is None else AnswerLeg(**answer),
            policy=stored["policy"],
        )


def transcript_row(
    exchange_id: UUID,
    tenant_id: int,
    legs: Legs,
    *,
    request: bytes = b"",
    request_encoding: str = "",
    vendor_answer: Capture | None = None,
    client_answer: bytes | None = None,
) -> Row | None:
    """Return the row in the order of the table's columns; None where nothing may be stored.

    `request` is the client's body and `vendor_answer` the last attempt's, both as they came.
    `client_answer` is our own error body, where that is what the client got. Nothing given is
    changed. About 0.2 ms for an ordinary exchange and 40 ms a megabyte: run large ones in a thread.
    """
    if legs.policy == TranscriptPolicy.NOTHING:
        return None
    asked = _masked_request(request, request_encoding)
    said = None if vendor_answer is None else _masked_answer(legs, vendor_answer)
    if legs.policy == TranscriptPolicy.SUMMARIES:
        summary = summary_of(asked, None if said is None else unpack(said))
        return (exchange_id, tenant_id, legs.to_json(), summary, None, None, None)
    error = None if client_answer is None else _packed(mask_body(client_answer))
    request_frames = None if asked is None else _packed(asked)
    return (exchange_id, tenant_id, legs.to_json(), None, request_frames, said, error)


def summary_of(request: bytes | None, answer: bytes | None) -> JsonObject:
    """Return the summary of two masked bodies, fit to be stored."""
    asked = None if request is None else _json(request)
    completion = None if answer is None else completion_of(answer)
    return cast("JsonObject", storable_json(summarise(asked, completion)))


def inflated(body: bytes, encoding: str) -> bytes | None:
    """Return the body without its Content-Encoding; None where it is too large or damaged."""
    if encoding.strip().lower() in {"", "identity"}:
        return body if len(body) <= MAX_STORED_BYTES else None
    try:
        return Inflater(encoding, base_bytes=MAX_STORED_BYTES, ratio=0).feed(body)
    except (InflateError, InflatedTooLargeError):
        return None


def completion_of(body: bytes) -> JsonObject | None:
    """Return the answer as one completion, whether it is one JSON body or a stream of events."""
    if body.lstrip().startswith(b"{"):
        value = _json(body)
        if isinstance(value, dict):
            return value
    events = [event for event in read_events(body) if isinstance(event, dict)]
    if not any(isinstance(event.get("choices"), list) for event in events):
        return None
    return fold(events)


def _masked_request(body: bytes, encoding: str) -> bytes | None:
    plain = inflated(body, encoding)
    return mask_body(plain) if plain else None


def _masked_answer(legs: Legs, answer: Capture) -> bytes | None:
    """Return the vendor's body as frames; as they are, where nothing had to be masked."""
    if not answer.kept_bytes or answer.kept_bytes > MAX_STORED_BYTES:
        return None
    frames = answer.frames()
    encoding = (
        _value_of(legs.vendor[-1].response_headers, "content-encoding") if legs.vendor else ""
    )
    body = unpack(frames)
    plain = inflated(body, encoding)
    if not plain:
        return None
    is_object = plain.lstrip().startswith(b"{")
    masked = mask_body(plain) if is_object else mask_stream(plain)
    return frames if masked == body else _packed(masked)


def _value_of(headers: HeaderItems, wanted: str) -> str:
    for name, value in headers:
        text = name.decode("latin-1") if isinstance(name, bytes) else name
        if text.lower() == wanted:
            return value.decode("latin-1") if isinstance(value, bytes) else value
    return ""


def _packed(body: bytes) -> bytes:
    capture = Capture()
    capture.add(body)
    return capture.frames()


def _json(body: bytes) -> Any:
    try:
        return decode(body)
    except ValueError:
        return None
