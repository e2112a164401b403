"""Talking to the running Farthing: a caller per key, and what the ledger says afterwards."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
import requests

from tests.stack import Stack, until

TIMEOUT_SECONDS = 20


@dataclass
class Caller:
    """One key at the relay."""

    base_url: str
    secret: str
    tenant: Any
    key: Any

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    def chat(
        self, model: str, text: str = "Say hello.", *, headers: dict[str, str] | None = None, **body
    ) -> requests.Response:
        body = {"model": model, "messages": [{"role": "user", "content": text}], **body}
        return self.post(json.dumps(body).encode(), headers=headers)

    def post(self, body: bytes, *, headers: dict[str, str] | None = None) -> requests.Response:
        return requests.post(
            f"{self.base_url}/v1/chat/completions",
            data=body,
            headers={**self.headers, "Content-Type": "application/json", **(headers or {})},
            timeout=TIMEOUT_SECONDS,
        )

    def get(self, path: str) -> requests.Response:
        return requests.get(f"{self.base_url}{path}", headers=self.headers, timeout=TIMEOUT_SECONDS)

    def settled(self, answer: requests.Response | str) -> Any:
        """The exchange behind an answer, once it is settled."""
        from billing.ids import exchange_id_of
        from billing.models import Exchange

        text = answer if isinstance(answer, str) else answer.headers["x-request-id"]
        exchange_id: UUID | None = exchange_id_of(text)
        query = Exchange.objects.select_related("charge", "price").filter(
            id=exchange_id, state="settled"
        )
        return until(query.first)

    def balance(self) -> tuple[int, int]:
        """Posted and held nanos."""
        from billing.models import Account

        wallet = Account.objects.get(tenant=self.tenant, kind="wallet")
        return wallet.posted_nanos, wallet.held_nanos


def events(answer: requests.Response) -> list[Any]:
    """The data of a stream's events, decoded; `[DONE]` as the text it is."""
    found = []
    for line in answer.content.split(b"\n"):
        if line.startswith(b"data: "):
            text = line.removeprefix(b"data: ")
            found.append("[DONE]" if text == b"[DONE]" else json.loads(text))
    return found


def text_of(chunks: list[Any]) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for chunk in chunks
        if isinstance(chunk, dict)
        for choice in chunk.get("choices", [])
    )


@pytest.fixture
def caller(stack: Stack, committed, world) -> Callable[..., Caller]:
    """Makes a caller with a tenant, a wallet and a key of its own."""

    def make(balance: str = "10", **limits) -> Caller:
        tenant = world.tenant(balance=balance)
        created = world.key(tenant, **limits)
        return Caller(stack.base_url, created.secret, tenant, created.key)

    return make
