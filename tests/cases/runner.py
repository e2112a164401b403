"""Plays a fault case through the real gateway over HTTP, and checks what came of it.

A case says what a vendor sends, what the client asks, what it gets and what is paid. Each case has
vendors, a model and a tenant of its own, so that no case sees what another left behind.
"""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from billing.models import Charge, Exchange, Price
from billing.money import nanos_from_text
from gateway.models import Model, Route, Vendor
from tests.api.conftest import Caller
from tests.cases.client import Got, ask, open_call
from tests.cases.wire import HELLO, JSON, VENDOR_MODEL, Answer, CaseVendor
from tests.raw_vendor import Call
from tests.stack import Stack, until

MESSAGES = [{"role": "user", "content": "Say hello."}]
BEARER = (("Authorization", "Bearer {key}"),)
TYPED = (("Content-Type", "application/json"),)
PRICES = {"input": "1.00", "cached_input": "0.10", "output": "4.00"}
NANOS = 10**9

Range = int | tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request. In header values and raw bodies `{key}` and `{model}` stand for the case's own.

    `fields` go into the usual body; `raw` is sent instead of it.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    raw: bytes | None = None
    headers: tuple[tuple[str, str], ...] = (*BEARER, *TYPED)
    method: str = "POST"
    path: str = "/v1/chat/completions"

    def body(self, model: str) -> bytes:
        if self.raw is not None:
            return self.raw.replace(b"{model}", model.encode())
        return json.dumps({"model": model, "messages": MESSAGES, **self.fields}).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gets:
    """What the client must see; None is "whatever". A header that must be absent is None."""

    status: int | tuple[int, ...] = 200
    kind: str | None = None
    text: str | None = None
    done: bool | None = None
    error: str | None = None
    usage_chunks: int | None = None
    finish: str | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    headers: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pays:
    """What the ledger must say. A pair is a range, both ends included."""

    source: str
    prompt: Range = 0
    completion: Range = 0
    cached: int = 0
    cost: str | None = None
    flags: tuple[str, ...] = ()
    outcome: str | None = None


NOTHING = Pays(source="none", cost="0")
NO_ROW = Pays(source="no row")
"""Nobody is known to whom the call could be written down."""


def vendors(prompt: Range, completion: Range, cost: str | None, **more: Any) -> Pays:
    return Pays(source="vendor", prompt=prompt, completion=completion, cost=cost, **more)


def estimated(completion: Range, prompt: Range = (3, 20), **more: Any) -> Pays:
    return Pays(source="estimate", prompt=prompt, completion=completion, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`sends` answers the first call, the second, and so on; its last answers all further ones.

    `vendor` are fields of the vendor's row; a tuple of them makes a route for each, in order.
    `sent` are values that the last request to a vendor must have, by their path, `sent_lacks`
    names that it must not have. `also` checks what is particular to the case.
    """

    id: str
    rule: str
    sends: Answer | Sequence[Answer] = HELLO
    asks: Ask = Ask()
    gets: Gets = Gets()
    pays: Pays
    calls: int | None = 1
    vendor: dict[str, Any] | tuple[dict[str, Any], ...] = field(default_factory=dict)
    prices: dict[str, str] = field(default_factory=lambda: PRICES)
    balance: str = "10"
    key: dict[str, Any] = field(default_factory=dict)
    gateway: str = "usual"
    sent: dict[str, Any] = field(default_factory=dict)
    sent_lacks: tuple[str, ...] = ()
    also: "Callable[[Played], None] | None" = None

    @property
    def model(self) -> str:
        return f"case-{self.id.lower()}"

    @property
    def answers(self) -> Sequence[Answer]:
        return (self.sends,) if isinstance(self.sends, Answer) else self.sends

    @property
    def vendor_rows(self) -> tuple[dict[str, Any], ...]:
        return self.vendor if isinstance(self.vendor, tuple) else (self.vendor,)


@dataclass(slots=True)
class Played:
    """A case after its call. `exchange` is None where nothing was written down."""

    case: Case
    caller: Caller
    got: Got
    calls: list[Call]
    exchange: Exchange | None = None


class Stage:
    """The gateway and the vendor of all cases; `play` is the whole of a case in one call."""

    def __init__(
        self,
        vendor: CaseVendor,
        stack: Stack,
        url_of: Callable[[str], str],
        caller: Callable[..., Caller],
    ) -> None:
        self.vendor = vendor
        self._stack = stack
        self._url_of = url_of
        self._caller = caller

    @property
    def gateway_pid(self) -> int:
        """Of the usual gateway."""
        (process,) = (one for one in self._stack.processes if one.log.stem == "gateway")
        return process.popen.pid

    def logs(self) -> str:
        """All that our processes have logged so far."""
        return "".join(process.text() for process in self._stack.processes)

    def caller(self, case: Case) -> Caller:
        """A new tenant with the case's balance, at the case's gateway."""
        made = self._caller(balance=case.balance, **case.key)
        made.base_url = self._url_of(case.gateway)
        return made

    def call(self, case: Case, caller: Caller, asks: Ask | None = None) -> Got:
        asks = asks or case.asks
        named = {"key": caller.secret, "model": case.model}
        headers = [(name, _filled(value, named)) for name, value in asks.headers]
        body = asks.body(case.model)
        return ask(caller.base_url, body, headers, method=asks.method, path=asks.path)

    def play(self, case: Case) -> Played:
        caller = self.caller(case)
        before = len(self.vendor.heard(case.model))
        got = self.call(case, caller)
        played = Played(case, caller, got, self.vendor.heard(case.model)[before:])
        check_answer(got, case.gets)
        check_calls(played)
        played.exchange = check_payment(caller, got, case.pays, case.balance)
        if case.also is not None:
            case.also(played)
        return played


def put_on(vendor: CaseVendor, cases: Sequence[Case]) -> None:
    """Write the cases' vendors, models, routes and prices, so that a gateway serves them."""
    from django.db import transaction
    from django.utils import timezone

    now = timezone.now()
    with transaction.atomic():
        for case in cases:
            vendor.put_on(case.model, case.answers)
            model = Model.objects.create(name=case.model)
            for number, fields in enumerate(case.vendor_rows):
                row = {"base_url": vendor.url(case.model), "credential": "vk-case-0001", **fields}
                to = Vendor.objects.create(name=f"{case.model}-{number}", **row)
                Route.objects.create(
                    model=model, vendor=to, vendor_model=VENDOR_MODEL, priority=number
                )
        Price.objects.bulk_create(
            Price(
                model=case.model,
                currency="USD",
                effective_from=now,
                **{f"{name}_nanos": nanos_from_text(price) for name, price in case.prices.items()},
            )
            for case in cases
        )


def is_served(base_url: str, case: Case, poor: Caller) -> bool:
    """Say whether a gateway knows a case by now; costs no call of a vendor."""
    headers = {"Authorization": f"Bearer {poor.secret}"}
    got = ask(base_url, Ask().body(case.model), list(headers.items()))
    assert got.status in {402, 404}, got.body
    return got.status == 402


@contextlib.contextmanager
def reading_slowly(case: Case, caller: Caller) -> Iterator[socket.socket]:
    """Send a case's request, and let the test read as much of the answer as it likes."""
    headers = [("Authorization", f"Bearer {caller.secret}"), *TYPED]
    with open_call(
        caller.base_url, case.asks.body(case.model), headers, window_bytes=4_096
    ) as wire:
        yield wire


def settled_rows(caller: Caller, outcome: str, count: int) -> list[Exchange]:
    rows = Exchange.objects.filter(tenant_id=caller.tenant.pk, charge__outcome=outcome)
    rows = rows.filter(state="settled").select_related("charge")
    return until(lambda: list(rows) if rows.count() == count else None)


def check_answer(got: Got, gets: Gets) -> None:
    statuses = gets.status if isinstance(gets.status, tuple) else (gets.status,)
    assert got.status in statuses, got.body[:500]
    body = got.body.decode()
    if gets.kind is not None:
        assert got.headers["content-type"].startswith(gets.kind)
    for name, value in gets.headers.items():
        assert got.headers.get(name.lower()) == value
    for words in gets.has:
        assert words in body
    for words in gets.lacks:
        assert words not in body
    if got.status >= 400 and gets.kind is None:
        assert got.headers["content-type"] == JSON
        assert set(got.json()["error"]) == {"message", "type", "param", "code"}
    if gets.error is not None:
        assert _error_code(got) == gets.error
    if got.status == 200 and got.is_stream:
        _check_stream(got, gets)
    elif gets.text is not None:
        assert got.text() == gets.text


def _check_stream(got: Got, gets: Gets) -> None:
    events, chunks = got.events(), got.chunks()
    if gets.text is not None:
        assert got.text() == gets.text
    if gets.done is not None:
        assert events.count("[DONE]") == int(gets.done)
    if gets.usage_chunks is not None:
        assert sum(1 for chunk in chunks if chunk.get("usage")) == gets.usage_chunks
        assert sum(1 for chunk in chunks if not chunk["choices"]) == gets.usage_chunks
    if gets.finish is not None:
        reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
        assert [reason for reason in reasons if reason] == [gets.finish]
    errors = [value for value in events if isinstance(value, dict) and "error" in value]
    assert len(errors) == int(gets.error is not None)
    assert ("[DONE]" in events) != bool(errors)


def _error_code(got: Got) -> str:
    if got.status >= 400:
        return got.json()["error"]["code"]
    return got.events()[-1]["error"]["code"]


def check_calls(played: Played) -> None:
    case, calls = played.case, played.calls
    if case.calls is not None:
        assert len(calls) == case.calls
    for path, value in case.sent.items():
        assert _at(calls[-1].payload, path) == value
    for name in case.sent_lacks:
        assert name not in calls[-1].payload


def check_payment(caller: Caller, got: Got, pays: Pays, balance: str) -> Exchange | None:
    """Wait for the settlement, and compare it and the wallet with what is to be paid."""
    if pays.source == "no row":
        assert not Exchange.objects.filter(tenant_id=caller.tenant.pk).exists()
        return None
    exchange = caller.settled(got.headers["x-request-id"])
    charge = exchange.charge
    if pays.cost is not None:
        assert charge.charge_nanos == _exact_nanos(pays.cost)
    if pays is not NOTHING:
        check_charge(charge, pays)
    if pays.outcome is not None:
        assert charge.outcome == pays.outcome
    posted = nanos_from_text(balance) - charge.charge_nanos
    until(lambda: caller.balance() == (posted, 0))
    return exchange


def check_charge(charge: Charge, pays: Pays) -> None:
    usage = usage_of(charge)
    assert charge.usage_source == pays.source
    assert_within(usage.prompt_tokens, pays.prompt)
    assert_within(usage.completion_tokens, pays.completion)
    assert usage.cached_input_tokens == pays.cached
    assert set(pays.flags) <= set(charge.flags or ())


def usage_of(charge: Charge) -> Any:
    from dataclasses import fields

    from billing.usage import Usage

    return Usage(**{one.name: getattr(charge, one.name) for one in fields(Usage)})


def assert_within(value: int, wanted: Range) -> None:
    low, high = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    assert low <= value <= high


def _exact_nanos(text: str) -> int:
    from decimal import Decimal

    nanos = Decimal(text) * NANOS
    assert nanos == int(nanos)
    return int(nanos)


def _at(value: Any, path: str) -> Any:
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _filled(text: str, named: dict[str, str]) -> str:
    for name, value in named.items():
        text = text.replace(f"{{{name}}}", value)
    return text
