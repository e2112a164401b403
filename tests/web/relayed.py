"""Exchanges that were relayed at a given time: written by the ledger's own statements."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from billing.ids import request_id
from billing.ledger import Facts, Hold, Settlement, payload, settle_now
from billing.messages import ESTIMATED, status_message, tell
from billing.models import EstimateJob, Exchange, MessageCategory
from billing.rating import cost_nanos, version_of
from billing.usage import Usage
from billing.writer import HOLD

USAGE = Usage(input_tokens=1_000, cached_input_tokens=24, output_tokens=333)
ANSWERED = [
    {
        "n": 1,
        "vendor": "benchecho",
        "vendor_model": "echo",
        "status": 200,
        "started_ms": 2,
        "first_byte_ms": 40,
        "ended_ms": 120,
    }
]


def id_at(moment: datetime) -> UUID:
    milliseconds = int(moment.timestamp() * 1_000)
    noise = int.from_bytes(os.urandom(10), "big")
    number = milliseconds << 80 | 0x7 << 76 | noise & (0xFFF << 64) | 0b10 << 62
    return UUID(int=number | noise & ((1 << 62) - 1))


@dataclass
class Relayed:
    """One exchange under a key. `price` None is what a test key has."""

    tenant: Any
    key: Any
    model: str = "farthing-echo"
    price: Any = None
    terms: Any = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    hold_nanos: int = 5_000_000
    is_stream: bool = True
    client_request_id: str | None = None
    id: UUID = field(init=False)

    def __post_init__(self) -> None:
        self.id = id_at(self.at)
        if self.price is None:
            self.hold_nanos = 0

    @property
    def public_id(self) -> str:
        return request_id(self.id)

    @property
    def row(self) -> Exchange:
        return Exchange.objects.select_related("charge").get(id=self.id)

    def hold(self) -> "Relayed":
        hold = Hold(
            exchange_id=self.id,
            tenant_id=self.tenant.pk,
            key_id=self.key.pk,
            process_id=1,
            price_id=None if self.price is None else self.price.pk,
            hold_nanos=self.hold_nanos,
            currency=self.tenant.currency,
            model=self.model,
            created_at=self.at,
            is_stream=self.is_stream,
            is_test=self.key.kind == "test",
            client_request_id=self.client_request_id,
            terms_id=None if self.terms is None else self.terms.pk,
        )
        with connection.cursor() as cursor:
            cursor.execute(HOLD, [payload(iter([hold.item()]))])
            assert cursor.fetchone()[1] == "held"
        return self

    def settle(
        self,
        usage: Usage = USAGE,
        *,
        source: str = "vendor",
        outcome: str = "answered",
        status_code: int = 200,
        error_code: str | None = None,
        finish_reason: str | None = "stop",
        message: dict[str, Any] | None = None,
        attempts: list[dict[str, Any]] | None = None,
        flags: tuple[str, ...] = (),
        estimate: dict[str, Any] | None = None,
    ) -> "Relayed":
        is_charged = self.price is not None and source != "none"
        settlement = Settlement(
            exchange_id=self.id,
            tenant_id=self.tenant.pk,
            currency=self.tenant.currency,
            cost_nanos=cost_nanos(usage, version_of(self.price, self.terms)) if is_charged else 0,
            usage=usage,
            usage_source=source,
            outcome=outcome,
            settled_at=self.at + timedelta(milliseconds=125),
            facts=Facts(
                ended_at=self.at + timedelta(milliseconds=120),
                first_byte_ms=40,
                duration_ms=120,
                status_code=status_code,
                error_code=error_code,
                finish_reason=finish_reason,
                attempts=ANSWERED if attempts is None else attempts,
                message=message,
            ),
            flags=flags,
            vendor_usage={"prompt_tokens": 1_024} if source == "vendor" else None,
            estimate=estimate,
        )
        (answer,) = settle_now([settlement])
        assert answer.is_settled_now
        return self

    def settle_at_estimate(self, usage: Usage = USAGE) -> "Relayed":
        """As a worker does: settled, and told."""
        self.settle(
            usage,
            source="estimate",
            message=status_message(ESTIMATED, 200),
            estimate={
                "sentence": "Counted with the vocabulary of Qwen2.5.",
                "expected_error": "0.03",
            },
        )
        tell(
            self.tenant.pk,
            MessageCategory.ESTIMATE,
            ESTIMATED,
            user_status=200,
            exchange_id=self.id,
            nanos=self.row.charge.charge_nanos,
            currency=self.tenant.currency,
            is_test=self.key.kind == "test",
        )
        return self

    def wait_for_estimate(self) -> "Relayed":
        Exchange.objects.filter(id=self.id).update(
            state="estimating", duration_ms=120, first_byte_ms=40, status_code=200
        )
        EstimateJob.objects.create(exchange_id=self.id, is_ready=True, vendor_model="echo")
        return self

    def refuse(self, status_code: int = 402, code: str = "insufficient_balance") -> "Relayed":
        """Nothing was held and no vendor asked."""
        item = {
            "id": self.id,
            "tenant_id": self.tenant.pk,
            "key_id": self.key.pk,
            "process_id": 1,
            "created_at": self.at,
            "ended_at": self.at,
            "duration_ms": 1,
            "status_code": status_code,
            "is_test": self.key.kind == "test",
            "is_stream": self.is_stream,
            "currency": self.tenant.currency,
            "model": self.model,
            "error_code": code,
            "client_request_id": self.client_request_id,
            "message": {
                "vendor_status": None,
                "vendor_message": None,
                "user_status": status_code,
                "user_message": "Your organisation's balance is used up. You were not charged. "
                "Top up under Billing, then try again.",
            },
        }
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM farthing_refuse(%s)", [payload(iter([item]))])
        return self
