"""Exchanges on the way to an estimate, as gateways leave them."""

import base64
from datetime import UTC, datetime
from typing import Any

import orjson
from django.db import connection

from billing.ledger import Facts, Hold, payload
from billing.models import Account, Charge, Exchange, Message
from billing.writer import ESTIMATE
from gateway.relay.capture import Capture
from tests.gateway.exchanges.made import FIXED_ANSWER, Maker, a_stream

REQUEST = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "benchmark"}]})
HOLD_NANOS = 2_000_000
COUNTED = (30, 65)  # of REQUEST and FIXED_ANSWER, by the family's vocabulary and template
COST_NANOS = 30 * 1_000 + 65 * 4_000
FAMILY = "qwen2.5"


def frames(body: bytes) -> str:
    capture = Capture()
    capture.add(body)
    return base64.b64encode(capture.frames()).decode()


class Ground:
    """One tenant with one price, and exchanges of it in every state on the way to an estimate."""

    def __init__(self, world) -> None:
        self.tenant = world.tenant(balance="1")
        self.price = world.price(f"estimated-{self.tenant.slug}")
        self.maker = Maker(self.tenant, price=self.price)

    def opened(self, **changes: Any) -> Hold:
        return self.maker.held(HOLD_NANOS, **changes)

    def kept(self, hold: Hold, **changes: Any) -> str:
        """What a gateway sends when an answer has ended without usage; its statement's word."""
        answer = changes.pop("answer", a_stream(FIXED_ANSWER))
        facts = {
            "head": {"status": 200, "headers": [["content-type", "text/event-stream"]]},
            "outcome": "answered",
            "cached_beside": None,
            "output_bound": 1_000,
            "choices": 1,
            "size_bytes": len(answer),
            "kept_bytes": len(answer),
            **changes.pop("facts", {}),
        }
        now = datetime.now(UTC)
        item = {
            "id": hold.exchange_id,
            "tenant_id": hold.tenant_id,
            "is_ready": True,
            "vendor_model": "vendor-m",
            "family": FAMILY,
            "job": facts,
            "request": frames(REQUEST),
            "answer": frames(answer),
            "now": now,
            "due_at": now,
            **Facts(status_code=200, ended_at=now).item(),
            **changes,
        }
        with connection.cursor() as cursor:
            cursor.execute(ESTIMATE, [payload(iter([item]))])
            return str(cursor.fetchone()[1])

    def waiting(self, **changes: Any) -> Hold:
        hold = self.opened()
        assert self.kept(hold, **changes) == "kept"
        return hold

    def balance(self) -> tuple[int, int]:
        wallet = Account.objects.get(tenant=self.tenant, kind="wallet")
        return wallet.posted_nanos, wallet.held_nanos

    def told(self) -> list[tuple[str, int]]:
        messages = Message.objects.filter(tenant=self.tenant)
        return [(message.user_message, message.count) for message in messages]


def charge_of(hold: Hold) -> Charge:
    return Charge.objects.get(exchange_id=hold.exchange_id)


def state_of(hold: Hold) -> str:
    return Exchange.objects.get(id=hold.exchange_id).state
