"""The driver of an exchange on a small stage: a real vendor, and a ledger that writes down.

Vendors are real loopback sockets and the upstream client is ours; what would be PostgreSQL, Redis
and the scribe notes what it is told. The whole thing with real stores is in tests/api.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import orjson

from billing.ids import new_exchange_id, request_id
from billing.rating import PriceVersion, Rates
from gateway.relay.accepted import Accepted, Arrival
from gateway.relay.request import read_request
from gateway.runtime.background import Background
from gateway.runtime.breakers import Breakers
from gateway.runtime.limits import Grant
from gateway.runtime.snapshot import BreakerSettings, PublicModel, RouteTo, VendorAccess
from gateway.runtime.spool import Spool
from gateway.upstream import Timeouts, Upstream
from tests.gateway.runtime.conftest import PLAIN

CREDENTIAL = "vk-canary-0001"
EXTENDED = (0, "extended", 1, None)
REFUSED = (0, "refused", 1, None)
PRICE = PriceVersion(1, "USD", Rates(*[1_000_000_000] * 5, *[4_000_000_000] * 3))
TIMEOUTS = Timeouts(connect_s=2.0, first_byte_s=5.0, idle_s=5.0, total_s=20.0)


def a_vendor(url: str = "http://127.0.0.1:1/v1", **changes: Any) -> VendorAccess:
    vendor = VendorAccess(
        id=1,
        name="north",
        base_url=url,
        credential=CREDENTIAL,
        timeouts=TIMEOUTS,
        max_connections=10,
        keep_alive_s=4.0,
        breaker=BreakerSettings(),
        drains_when_client_is_gone=False,
        cached_beside=None,
        accepts_stream_options=True,
        request_headers=(
            (b"authorization", f"Bearer {CREDENTIAL}".encode()),
            (b"content-type", b"application/json"),
        ),
        hidden_words=("north", CREDENTIAL),
    )
    return replace(vendor, **changes)


def accepted(vendor: VendorAccess | None = None, *, stream: bool = True, **changes: Any):
    """A request of which everything is known. Called on the event loop's thread."""
    body = orjson.dumps(
        {
            "model": "alias-m",
            "stream": stream,
            "messages": [{"role": "user", "content": "Say hello."}],
            **changes.pop("body", {}),
        }
    )
    exchange_id = new_exchange_id()
    route = RouteTo(vendor or a_vendor(), "vendor-m", None, 0, 1)
    model = PublicModel("alias-m", None, 1_000, 100, 100, 0, (route,), None)
    arrival = Arrival(
        exchange_id=exchange_id,
        request_id=request_id(exchange_id),
        started_s=asyncio.get_running_loop().time(),
        created_at=datetime.now(UTC),
        path="/v1/chat/completions",
        http_version="1.1",
        headers=[(b"host", b"localhost")],
        client_address="127.0.0.1",
        client_request_id=None,
        body=body,
    )
    value = Accepted(
        arrival=arrival,
        principal=replace(PLAIN, tenant_id=7),
        request=read_request(body),
        model=model,
        routes=[route],
        price=PRICE,
        currency="USD",
        hold_nanos=1_000_000,
        prompt_bound=20,
        output_bound=100,
        grant=Grant(is_allowed=True, slot="slot"),
    )
    return replace(value, **changes)


class Ledger:
    """A writer that notes items. `answers` are given in turn; the last one for ever."""

    def __init__(self, name: str, *answers: Any) -> None:
        self.name = name
        self.items: list[dict[str, Any]] = []
        self.asked = asyncio.Event()
        self._answers = list(answers) or [(0, "settled" if name == "settlements" else "kept")]

    def submit(self, item: dict[str, Any]) -> asyncio.Future[Any]:
        self.items.append(item)
        self.asked.set()
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        future = asyncio.get_running_loop().create_future()
        if isinstance(answer, asyncio.Future):
            return answer
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


class Stage:
    """What `Exchange` and `Settling` see of a runtime."""

    def __init__(self, **parts: Any) -> None:
        self.background = Background()
        self.extensions = parts.get("extensions") or Ledger("extensions", EXTENDED)
        self.settlements = parts.get("settlements") or Ledger("settlements")
        self.estimates = parts.get("estimates") or Ledger("estimates")
        self.spool = parts.get("spool") or Spool(None)
        self.breakers = parts.get("breakers") or Breakers()
        self.spoken: list[Any] = []
        self.recorder = SimpleNamespace(put=self.spoken.append)
        self.given_back: list[str] = []
        self.limiter = SimpleNamespace(give_back=self._give_back)
        self._upstreams: dict[VendorAccess, Upstream] = {}

    def _give_back(self, grant: Grant) -> None:
        self.given_back.append(grant.slot)

    def upstream(self, vendor: VendorAccess) -> Upstream:
        if vendor not in self._upstreams:
            self._upstreams[vendor] = Upstream(
                vendor.base_url, timeouts=vendor.timeouts, max_connections=vendor.max_connections
            )
        return self._upstreams[vendor]

    async def close(self) -> None:
        await self.background.finish(5.0)
        for upstream in self._upstreams.values():
            await upstream.close()


class Client:
    """The client's end: what it got, and when it leaves or stops taking bytes."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.is_ended = False
        self.leaves = asyncio.Event()
        self.is_missed = asyncio.Event()
        self.takes = asyncio.Event()
        self.takes.set()
        self.moved = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        self.is_missed.set()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        assert not self.is_ended
        if message["type"] == "http.response.start":
            assert not self.status
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            assert self.status
            self.body += message.get("body", b"")
            self.is_ended = not message.get("more_body", False)
        self.moved.set()
        await self.takes.wait()

    async def has(self, text: bytes) -> None:
        """Wait until this has come."""
        while text not in self.body:
            self.moved.clear()
            await self.moved.wait()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(bounded())
