"""The transcript of an exchange, made from what the driver knows when it is the record's turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.exchanges.record import AnswerLeg, ClientLeg, Legs, Row, VendorLeg, transcript_row
from gateway.relay.accepted import Accepted, Headers
from gateway.relay.attempt import PATH, Attempt

MILLISECONDS = 1_000


@dataclass(frozen=True, slots=True)
class Sent:
    """④ as it went out. `at_s` 0.0: the client left before the head was sent."""

    status: int
    headers: Headers
    at_s: float
    size_bytes: int
    usage: dict[str, Any] | None
    error_body: bytes | None


def row_of(accepted: Accepted, attempts: Sequence[Attempt], sent: Sent) -> Row | None:
    arrival, request = accepted.arrival, accepted.request
    origin_s = arrival.started_s
    legs = Legs(
        client=ClientLeg(
            method="POST",
            path=arrival.path,
            http_version=arrival.http_version,
            address=arrival.client_address,
            headers=arrival.headers,
            size_bytes=len(arrival.body),
        ),
        vendor=[
            _vendor_leg(number, attempt, origin_s) for number, attempt in enumerate(attempts, 1)
        ],
        answer=AnswerLeg(
            status=sent.status,
            headers=sent.headers,
            at_ms=_ms(sent.at_s, origin_s),
            size_bytes=sent.size_bytes,
            is_stream=request.stream,
            wants_usage=request.include_usage,
            usage=sent.usage,
        )
        if sent.at_s
        else None,
        policy=accepted.principal.transcript_policy,
    )
    return transcript_row(
        arrival.exchange_id,
        accepted.principal.tenant_id,
        legs,
        request=arrival.body,
        request_encoding=_value(arrival.headers, b"content-encoding"),
        vendor_answer=attempts[-1].capture if attempts else None,
        client_answer=sent.error_body,
    )


def _vendor_leg(number: int, attempt: Attempt, origin_s: float) -> VendorLeg:
    return VendorLeg(
        number=number,
        vendor=attempt.route.vendor.name,
        vendor_model=attempt.route.vendor_model,
        url=attempt.route.vendor.base_url.rstrip("/") + PATH,
        include_usage=attempt.asks_usage,
        headers=attempt.request_headers,
        size_bytes=len(attempt.body),
        at_ms=_ms(attempt.started_s, origin_s),
        status=attempt.status or None,
        response_headers=attempt.headers,
        response_at_ms=_ms(attempt.first_byte_s or attempt.head_s, origin_s)
        if attempt.head_s
        else None,
        response_size_bytes=attempt.capture.size_bytes,
        sha256=attempt.capture.sha256,
        error=attempt.fault.value if attempt.fault is not None else None,
    )


def _value(headers: Headers, wanted: bytes) -> str:
    for name, value in headers:
        if name == wanted:
            return value.decode("latin-1")
    return ""


def _ms(moment_s: float, origin_s: float) -> float:
    return round((moment_s - origin_s) * MILLISECONDS, 1)
