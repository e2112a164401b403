"""Exchanges as the relay leaves them: held, settled and recorded through the same functions."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from django.db import connection

from billing.ids import new_exchange_id
from billing.ledger import Facts, Hold, Settlement, hold_answer, payload, settle_now
from billing.models import EstimateJob, Exchange
from billing.rating import cost_nanos, version_of
from billing.usage import Usage
from billing.writer import ESTIMATE, HOLD, REFUSE
from gateway.exchanges.record import AnswerLeg, ClientLeg, Legs, VendorLeg, transcript_row
from gateway.models import Transcript
from gateway.relay.capture import Capture
from gateway.relay.request import read_request, vendor_body

MODEL = "qwen2.5-coder-1.5b-free-g7"
VENDOR_MODEL = "qwen2.5-coder-1.5b-instruct-mlx"
URL = "http://127.0.0.1:1234/v1/chat/completions"
FIXED_ANSWER = "vibetoken-benchmark-fixed-response" * 8
REQUEST = orjson.dumps(
    {"messages": [{"content": "benchmark", "role": "user"}], "model": MODEL, "stream": True}
)
CLIENT_HEADERS = [
    (b"accept-encoding", b"gzip"),
    (b"authorization", b"Bearer sk_sys_root_example_000"),
    (b"content-length", b"103"),
    (b"content-type", b"application/json"),
    (b"user-agent", b"Go-http-client/2.0"),
    (b"via", b"2.0 Caddy"),
    (b"x-forwarded-for", b"203.0.113.38"),
    (b"host", b"api.example.test:5201"),
]
VENDOR_HEADERS = [
    (b"authorization", b"Bearer ::keyless::"),
    (b"content-type", b"application/json"),
    (b"user-agent", b"Farthing"),
]
STREAM_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
ATTEMPT = {
    "n": 1,
    "vendor": "north",
    "vendor_model": VENDOR_MODEL,
    "status": 200,
    "started_ms": 4,
    "first_byte_ms": 20,
    "ended_ms": 50,
}


def a_stream(*texts: str, usage: dict[str, Any] | None = None) -> bytes:
    head = {
        "id": "chatcmpl-bench",
        "created": 7,
        "model": "bench",
        "object": "chat.completion.chunk",
    }
    deltas = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts), {}]
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    chunks[-1]["choices"][0]["finish_reason"] = "stop"
    if usage is not None:
        chunks.append({**head, "choices": [], "usage": usage})
    return b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + (
        b"data: [DONE]\n\n"
    )


@dataclass(frozen=True)
class Maker:
    """Makes exchanges of one tenant and key."""

    tenant: Any
    key: Any = None
    price: Any = None

    def held(self, nanos: int = 2_231_343, **changes: Any) -> Hold:
        hold = Hold(
            exchange_id=new_exchange_id(),
            tenant_id=self.tenant.pk,
            key_id=0 if self.key is None else self.key.pk,
            process_id=1,
            price_id=None if self.price is None else self.price.pk,
            hold_nanos=nanos,
            currency="USD",
            model=MODEL,
            created_at=datetime.now(UTC),
            is_stream=True,
            is_test=False,
        )
        hold = replace(hold, **changes)
        with connection.cursor() as cursor:
            cursor.execute(HOLD, [payload(iter([hold.item()]))])
            assert hold_answer(cursor.fetchall()[0]).is_held
        return hold

    def settled(self, hold: Hold | None = None, **changes: Any) -> Exchange:
        hold = hold or self.held()
        usage = changes.pop("usage", Usage(input_tokens=1_843, output_tokens=1_128))
        facts = {
            "status_code": 200,
            "finish_reason": "stop",
            "first_byte_ms": 703,
            "duration_ms": 4_861,
            "attempts": [ATTEMPT],
            **changes.pop("facts", {}),
        }
        cost = 0 if self.price is None else cost_nanos(usage, version_of(self.price))
        settlement = Settlement(
            exchange_id=hold.exchange_id,
            tenant_id=hold.tenant_id,
            currency="USD",
            cost_nanos=changes.pop("cost_nanos", cost),
            usage=usage,
            usage_source=changes.pop("usage_source", "vendor"),
            outcome=changes.pop("outcome", "answered"),
            settled_at=datetime.now(UTC),
            facts=Facts(**facts),
            **changes,
        )
        assert settle_now([settlement])[0].is_settled_now
        return Exchange.objects.get(id=hold.exchange_id)

    def estimating(self) -> Exchange:
        hold = self.held()
        item = {
            "id": hold.exchange_id,
            "tenant_id": hold.tenant_id,
            "is_ready": True,
            "vendor_model": VENDOR_MODEL,
            "family": None,
            "job": {},
            "request": "",
            "answer": "",
            "now": hold.created_at,
            "due_at": hold.created_at,
            **Facts(status_code=200, attempts=[ATTEMPT], ended_at=hold.created_at).item(),
        }
        with connection.cursor() as cursor:
            cursor.execute(ESTIMATE, [payload(iter([item]))])
        assert EstimateJob.objects.filter(exchange_id=hold.exchange_id).exists()
        return Exchange.objects.get(id=hold.exchange_id)

    def refused(self) -> Exchange:
        exchange_id = new_exchange_id()
        now = datetime.now(UTC)
        item = {
            "id": exchange_id,
            "tenant_id": self.tenant.pk,
            "key_id": 0 if self.key is None else self.key.pk,
            "process_id": 1,
            "created_at": now,
            "ended_at": now,
            "duration_ms": 1,
            "status_code": 402,
            "is_test": False,
            "is_stream": True,
            "currency": "USD",
            "model": MODEL,
            "error_code": "insufficient_balance",
            "client_request_id": None,
            "message": None,
        }
        with connection.cursor() as cursor:
            cursor.execute(REFUSE, [payload(iter([item]))])
        return Exchange.objects.get(id=exchange_id)


def record(
    exchange: Exchange,
    *,
    answer: bytes = b"",
    request: bytes = REQUEST,
    error: bytes | None = None,
    **changes: Any,
) -> Transcript:
    """Store what was said. `changes` go to the legs: client, vendor, answer, policy."""
    capture = Capture()
    capture.add(answer)
    asked = read_request(request)
    sent = vendor_body(asked, vendor_model=VENDOR_MODEL, include_usage=True)
    client = ClientLeg("POST", "/v1/chat/completions", "1.1", "127.0.0.1", CLIENT_HEADERS)
    legs = Legs(
        client=replace(client, size_bytes=len(request)),
        vendor=[
            VendorLeg(
                number=1,
                vendor="north",
                vendor_model=VENDOR_MODEL,
                url=URL,
                include_usage=True,
                headers=VENDOR_HEADERS,
                size_bytes=len(sent),
                at_ms=4.3,
                status=200,
                response_headers=STREAM_HEADERS,
                response_at_ms=20.5,
                response_size_bytes=len(answer),
            )
        ],
        answer=AnswerLeg(
            status=200,
            headers=[*STREAM_HEADERS, (b"x-request-id", b"req_1")],
            at_ms=21.0,
            is_stream=asked.stream,
            wants_usage=asked.include_usage,
        ),
    )
    row = transcript_row(
        exchange.id,
        exchange.tenant_id,
        replace(legs, **changes),
        request=request,
        vendor_answer=capture if answer else None,
        client_answer=error,
    )
    columns = [field.attname for field in Transcript._meta.concrete_fields]
    return Transcript.objects.create(**dict(zip(columns, row, strict=True)))
