"""The four legs of an exchange as they are shown: two are stored, two are made of them again.

② is what `vendor_body` makes of ①, and ④ what `AnswerRelay` makes of ③, as on the day itself.
Where a body is not there, a sentence says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from billing.ids import completion_id
from billing.models import Exchange, ExchangeState
from billing.storable import storable_json
from gateway.errors import ApiError
from gateway.exchanges.record import (
    MAX_STORED_BYTES,
    AnswerLeg,
    JsonObject,
    Legs,
    VendorLeg,
    completion_of,
    summary_of,
)
from gateway.models import Transcript
from gateway.relay.answer import AnswerRelay
from gateway.relay.capture import unpack
from gateway.relay.failures import Fault
from gateway.relay.json_text import decode
from gateway.relay.request import ClientRequest, read_request, vendor_body
from keys.models import TranscriptPolicy

RAW_CHARS = 200_000
"""Of a body as text on a page; the JSON view has it whole."""
MEBIBYTE = 1024 * 1024
VENDOR_METHOD = "POST"
CLIENT_GONE = "client_gone"

NOT_WRITTEN_YET = "This is written when the exchange has ended."
REFUSED = "The request was refused before it was forwarded: nothing went to a vendor."
NOTHING_STORED = (
    "Nothing is stored of this exchange: your organisation keeps no transcripts, "
    "or the time for which they are kept is over."
)
SUMMARIES_ONLY = "Your organisation stores summaries only, not what was said."
TOO_LARGE = f"Larger than {MAX_STORED_BYTES // MEBIBYTE} MiB: only its size is kept."
NOT_KEPT = "The body could not be read, so it is not kept."
EMPTY = "There was no body."
NO_BYTE = "No byte came back"
LAST_ONLY = "Only the last attempt's answer is kept."
CLIENT_LEFT = "The client left before an answer was sent."
OUR_ACCOUNT = (
    "The vendor refused Farthing's account, which is not your fault; staff see its answer."
)

FOR_STAFF = frozenset({401, 402, 403})
"""A vendor's word on our credential or our account: a tenant is told that it failed, not how."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One of the four messages. Requests have a `method` and a `url`, answers a `status`.

    `body` is JSON: of a stream the `chat.completion` that it adds up to. `raw` is the text that
    went over the wire, masked, at most `RAW_CHARS` of it. `absence` says why `raw` is None.
    """

    number: int
    method: str | None = None
    url: str | None = None
    status: int | None = None
    headers: Sequence[Sequence[str]] = ()
    size_bytes: int | None = None
    at_ms: float | None = None
    body: Any = None
    raw: str | None = None
    is_raw_cut: bool = False
    is_stream: bool = False
    absence: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptLegs:
    """② and ③ of one attempt at a vendor. `error` is what broke, apart from a status."""

    number: int
    vendor: str
    vendor_model: str
    request: Leg
    response: Leg
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LegsView:
    """`policy` is what the tenant had chosen then, None where nothing is stored."""

    client_request: Leg
    attempts: tuple[AttemptLegs, ...]
    client_response: Leg
    policy: str | None = None
    summary: JsonObject | None = None
    wants_usage: bool = False
    dropped: tuple[str, ...] = ()


def is_for_staff(vendor_status: int | None) -> bool:
    return vendor_status in FOR_STAFF


def legs_of(exchange: Exchange, transcript: Transcript | None) -> LegsView:
    """Return the four legs; total on whatever is stored, or not."""
    if transcript is None:
        absence = _why_nothing(exchange)
        return LegsView(Leg(1, absence=absence), (), Leg(4, absence=absence))
    return _Reading(exchange, transcript).view()


def _why_nothing(exchange: Exchange) -> str:
    if exchange.state == ExchangeState.OPEN:
        return NOT_WRITTEN_YET
    return NOTHING_STORED if exchange.attempts else REFUSED


class _Reading:
    """One row, unpacked once."""

    def __init__(self, exchange: Exchange, transcript: Transcript) -> None:
        self.exchange = exchange
        self.legs = Legs.from_json(transcript.legs)
        self.asked = _unpacked(transcript.client_request)
        self.said = _unpacked(transcript.vendor_answer)
        self.error = _unpacked(transcript.client_answer)
        self.summary = transcript.summary
        self.request = _request_of(self.asked)

    def view(self) -> LegsView:
        answer = self.legs.answer
        summary = self.summary
        if summary is None and self.asked is not None:
            summary = summary_of(self.asked, self.said)
        return LegsView(
            client_request=self._client_request(),
            attempts=tuple(map(self._attempt, self.legs.vendor)),
            client_response=self._client_response(),
            policy=self.legs.policy,
            summary=summary,
            wants_usage=answer is not None and answer.wants_usage,
            dropped=() if self.request is None else self.request.dropped,
        )

    def _client_request(self) -> Leg:
        client = self.legs.client
        leg = Leg(
            1,
            method=client.method,
            url=client.path,
            headers=_pairs(client.headers),
            size_bytes=client.size_bytes,
            at_ms=0.0,
        )
        return self._with_body(leg, self.asked)

    def _attempt(self, leg: VendorLeg) -> AttemptLegs:
        return AttemptLegs(
            number=leg.number,
            vendor=leg.vendor,
            vendor_model=leg.vendor_model,
            request=self._vendor_request(leg),
            response=self._vendor_response(leg),
            error=leg.error,
        )

    def _vendor_request(self, vendor: VendorLeg) -> Leg:
        leg = Leg(
            2,
            method=VENDOR_METHOD,
            url=vendor.url,
            headers=_pairs(vendor.headers),
            size_bytes=vendor.size_bytes,
            at_ms=vendor.at_ms,
        )
        body = None
        if self.request is not None:
            body = vendor_body(
                self.request, vendor_model=vendor.vendor_model, include_usage=vendor.include_usage
            )
        return self._with_body(leg, body)

    def _vendor_response(self, vendor: VendorLeg) -> Leg:
        leg = Leg(
            3,
            status=vendor.status,
            headers=_pairs(vendor.response_headers),
            size_bytes=vendor.response_size_bytes,
            at_ms=vendor.response_at_ms,
        )
        if vendor.status is None:
            what = f": {vendor.error}" if vendor.error else ""
            return replace(leg, absence=f"{NO_BYTE}{what}.")
        if is_for_staff(vendor.status):
            return Leg(3, at_ms=vendor.response_at_ms, absence=OUR_ACCOUNT)
        if vendor.number != self.legs.vendor[-1].number:
            return replace(leg, absence=LAST_ONLY)
        return self._with_body(leg, self.said)

    def _client_response(self) -> Leg:
        answer = self.legs.answer
        if answer is None:
            return Leg(4, absence=CLIENT_LEFT)
        leg = Leg(
            4,
            status=answer.status,
            headers=_pairs(answer.headers),
            size_bytes=answer.size_bytes,
            at_ms=answer.at_ms,
        )
        if self.error is not None:
            return self._with_body(leg, self.error)
        return self._with_body(leg, self._relayed(answer))

    def _relayed(self, answer: AnswerLeg) -> bytes | None:
        """Feed the vendor's answer to the relay's core once more."""
        if self.said is None or not self.legs.vendor:
            return None
        vendor = self.legs.vendor[-1]
        relay = AnswerRelay(
            client_streams=answer.is_stream,
            client_wants_usage=answer.wants_usage,
            completion_id=completion_id(self.exchange.id),
            model=self.exchange.model,
            vendor_model=vendor.vendor_model,
            hidden=(vendor.vendor,),
            n=1 if self.request is None else self.request.n,
        )
        relay.receive_head(vendor.status or 0, ())
        out = relay.receive(self.said)
        if self.exchange.error_code == CLIENT_GONE:
            return out
        fault = _fault(vendor.error)
        out += relay.receive_end() if fault is None else relay.receive_fault(fault)
        return out + relay.closing(answer.usage)

    def _with_body(self, leg: Leg, body: bytes | None) -> Leg:
        if not body:
            return replace(leg, absence=self._why_no_body(leg))
        text = body.decode("utf-8", "replace")
        is_stream = leg.number > 2 and not body.lstrip().startswith((b"{", b"<"))  # noqa: PLR2004
        return replace(
            leg,
            body=_showable(completion_of(body) if is_stream else _json(body), body),
            raw=text[:RAW_CHARS],
            is_raw_cut=len(text) > RAW_CHARS,
            is_stream=is_stream,
        )

    def _why_no_body(self, leg: Leg) -> str:
        if self.legs.policy == TranscriptPolicy.SUMMARIES:
            return SUMMARIES_ONLY
        if not leg.size_bytes:
            return EMPTY
        return TOO_LARGE if leg.size_bytes > MAX_STORED_BYTES else NOT_KEPT


def _unpacked(frames: bytes | memoryview | None) -> bytes | None:
    return None if frames is None else unpack(bytes(frames), MAX_STORED_BYTES)


def _request_of(body: bytes | None) -> ClientRequest | None:
    try:
        return None if body is None else read_request(body)
    except ApiError:  # it was accepted as it came; masked, it is shown as it stands
        return None


def _json(body: bytes) -> Any:
    try:
        return decode(body)
    except ValueError:
        return None


def _showable(value: Any, body: bytes) -> Any:
    """Return the value without halves of characters, which only escapes can bring in."""
    return storable_json(value) if b"\\u" in body else value


def _fault(error: str | None) -> Fault | None:
    try:
        return None if error is None else Fault(error)
    except ValueError:
        return None


def _pairs(headers: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in headers)
