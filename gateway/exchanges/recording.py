"""From the relay's own objects to the row that is stored of an exchange."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from gateway.exchanges.transcript import AnswerLeg, ClientLeg, Legs, Row, VendorLeg, make_row
from gateway.relay.accepted import Accepted, Headers
from gateway.relay.attempt import Attempt

METHOD = "POST"
VENDOR_PATH = "/chat/completions"
MILLISECONDS = 1_000
NOT_SHOWN = frozenset({b"accept-encoding"})  # always identity: says nothing about an exchange


def transcript_row(
    accepted: Accepted,
    attempts: Sequence[Attempt],
    *,
    status: int,
    client_headers: Headers,
    head_sent_s: float,
    error_body: bytes | None = None,
) -> Row | None:
    """Return the row of `gateway_transcript`; None where the tenant wants nothing stored.

    `head_sent_s` is the event loop's clock, 0.0 where the client left before anything was sent.
    """
    arrival = accepted.arrival
    legs = Legs(
        client=_client_leg(accepted),
        vendor=[_vendor_leg(attempt, n, accepted) for n, attempt in enumerate(attempts, 1)],
        answer=_answer_leg(accepted, status, client_headers, head_sent_s),
        policy=accepted.principal.transcript_policy,
    )
    return make_row(
        arrival.exchange_id,
        accepted.principal.tenant_id,
        legs,
        request=arrival.body,
        request_encoding=dict(arrival.headers).get(b"content-encoding", b"").decode("latin-1"),
        vendor_answer=attempts[-1].capture if attempts else None,
        client_answer=error_body,
    )


def _client_leg(accepted: Accepted) -> ClientLeg:
    arrival = accepted.arrival
    return ClientLeg(
        method=METHOD,
        path=arrival.path,
        http_version=arrival.http_version,
        address=arrival.client_address,
        headers=arrival.headers,
        size_bytes=len(arrival.body),
    )


def _vendor_leg(attempt: Attempt, number: int, accepted: Accepted) -> VendorLeg:
    vendor = attempt.route.vendor
    url = vendor.base_url.rstrip("/") + VENDOR_PATH
    host = urlsplit(url).netloc.rpartition("@")[2].encode()
    origin_s = accepted.arrival.started_s
    sent = [header for header in attempt.request_headers if header[0] not in NOT_SHOWN]
    return VendorLeg(
        number=number,
        vendor=vendor.name,
        vendor_model=attempt.route.vendor_model,
        url=url,
        include_usage=accepted.request.stream and attempt.asks_usage,
        headers=[*sent, (b"host", host)],
        size_bytes=len(attempt.body),
        at_ms=_offset_ms(attempt.started_s, origin_s),
        status=attempt.status or None,
        response_headers=attempt.headers,
        response_at_ms=_offset_ms(attempt.head_s, origin_s) if attempt.head_s else None,
        response_size_bytes=attempt.capture.size_bytes,
        sha256=attempt.capture.sha256,
        error=None if attempt.fault is None else attempt.fault.value,
    )


def _answer_leg(
    accepted: Accepted, status: int, headers: Headers, head_sent_s: float
) -> AnswerLeg | None:
    if not head_sent_s:
        return None
    return AnswerLeg(
        status=status,
        headers=headers,
        at_ms=_offset_ms(head_sent_s, accepted.arrival.started_s),
        is_stream=accepted.request.stream,
        wants_usage=accepted.request.include_usage,
    )


def _offset_ms(moment_s: float, origin_s: float) -> float:
    return round((moment_s - origin_s) * MILLISECONDS, 1)
