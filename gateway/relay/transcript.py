"""What the driver knows of an exchange, as plain values that another process can write down.

`spoken` runs on the hot path and only gathers; `row_of` runs in the scribe (gateway.exchanges
.scribe), where masking and packing cost nobody's latency.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from gateway.exchanges.masking import DOTS
from gateway.exchanges.record import AnswerLeg, ClientLeg, Legs, Row, VendorLeg, transcript_row
from gateway.relay.accepted import Accepted
from gateway.relay.attempt import PATH, Attempt
from gateway.relay.capture import Capture, unpack
from gateway.relay.failures import SECRET_CHARS_MIN
from gateway.relay.headers import Headers

METHOD = "POST"
MILLISECONDS = 1_000

REQUEST_HEADERS = 4  # their place in what `_vendor_part` answers

Spoken = tuple[Any, ...]
"""Built-in types only, in the order that `row_of` reads."""


@dataclass(frozen=True, slots=True)
class Sent:
    """④ as it went out. `at_s` 0.0: the client left before the head was sent."""

    status: int
    headers: Headers
    at_s: float
    size_bytes: int
    usage: dict[str, Any] | None
    error_body: bytes | None


def spoken(accepted: Accepted, attempts: Sequence[Attempt], sent: Sent) -> Spoken:
    arrival = accepted.arrival
    origin_s = arrival.started_s
    return (
        arrival.exchange_id.bytes,
        accepted.principal.tenant_id,
        accepted.principal.transcript_policy,
        (
            arrival.path,
            arrival.http_version,
            arrival.client_address,
            list(arrival.headers),
            arrival.body,
        ),
        [_vendor_part(attempt, origin_s) for attempt in attempts],
        attempts[-1].capture.parts() if attempts else None,
        (
            sent.status,
            sent.headers,
            _ms(sent.at_s, origin_s),
            sent.size_bytes,
            accepted.request.stream,
            accepted.request.include_usage,
            sent.usage,
        )
        if sent.at_s
        else None,
        sent.error_body,
    )


def row_of(heard: Spoken) -> Row | None:
    exchange_id, tenant_id, policy, client, vendor, answer, sent, error_body = heard
    path, http_version, address, headers, body = client
    legs = Legs(
        client=ClientLeg(METHOD, path, http_version, address, headers, len(body)),
        vendor=[VendorLeg(number, *part) for number, part in enumerate(vendor, 1)],
        answer=AnswerLeg(*sent) if sent is not None else None,
        policy=policy,
    )
    return transcript_row(
        UUID(bytes=exchange_id),
        tenant_id,
        legs,
        request=body,
        request_encoding=_value(headers, b"content-encoding"),
        vendor_answer=None if answer is None else _captured(answer, _credentials(vendor)),
        client_answer=error_body,
    )


def _vendor_part(attempt: Attempt, origin_s: float) -> tuple[Any, ...]:
    """The fields of a `VendorLeg` behind its number."""
    vendor = attempt.route.vendor
    return (
        vendor.name,
        attempt.route.vendor_model,
        vendor.base_url.rstrip("/") + PATH,
        attempt.asks_usage,
        attempt.request_headers,
        len(attempt.body),
        _ms(attempt.started_s, origin_s),
        attempt.status or None,
        attempt.headers,
        _ms(attempt.first_byte_s or attempt.head_s, origin_s) if attempt.head_s else None,
        attempt.capture.size_bytes,
        attempt.capture.sha256,
        attempt.fault.value if attempt.fault is not None else None,
    )


def _captured(parts: tuple[bytes, bytes], credentials: set[bytes]) -> Capture:
    """What a vendor said, without our credential, which a vendor may have repeated."""
    frames, rest = parts
    body = unpack(frames) + rest
    for credential in credentials:
        body = body.replace(credential, DOTS.encode())
    capture = Capture()
    capture.add(body)
    return capture


def _credentials(vendor: Sequence[tuple[Any, ...]]) -> set[bytes]:
    sent = (_value(part[REQUEST_HEADERS], b"authorization") for part in vendor)
    said = {value.removeprefix("Bearer ").encode("latin-1") for value in sent}
    return {credential for credential in said if len(credential) >= SECRET_CHARS_MIN}


def _value(headers: Headers, wanted: bytes) -> str:
    for name, value in headers:
        if name == wanted:
            return value.decode("latin-1")
    return ""


def _ms(moment_s: float, origin_s: float) -> float:
    return round((moment_s - origin_s) * MILLISECONDS, 1)
