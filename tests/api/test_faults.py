"""What breaks around one gateway process: PostgreSQL, Redis, vendors and clients, for real.

Between the gateway and its stores stand proxies that a test cuts; its vendors are raw sockets that
a test scripts. One gateway serves the whole file, and every test mends what it breaks.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import requests
from django.conf import settings

from billing.audit import audit
from billing.models import Account, Exchange
from gateway.exchanges.recovery import sweep
from gateway.models import Transcript
from gateway.relay.capture import unpack
from tests.api.conftest import Caller, events, text_of
from tests.proxy import Proxy
from tests.raw_vendor import DONE, ENDING, USAGE, WHOLE, Call, RawVendor, chunk
from tests.stack import Process, Stack, until

ORIGIN = "https://app.example"
HEARTBEAT_S = 0.2
COST_NANOS = 30_000  # of USAGE at 1 and 4 a million
MEGABYTE = 1024 * 1024
FLOOD_BYTES = 60 * MEGABYTE
VENDOR_KEY = "vk-canary-0001"

QUICK = {"first_byte_timeout_ms": 300, "idle_timeout_ms": 300, "total_timeout_ms": 8_000}
VENDORS = {
    "patient": {"credential": VENDOR_KEY},
    "quick": QUICK,
    "narrow": {"max_connections": 2},
    "newline": {"credential": "vk-1\n"},
    "blanks": {"credential": " vk-2\t"},
    "keyless": {"credential": ""},
    "spare": {},
    "absent": {"base_url": "http://127.0.0.1:1/v1"},
}
# A model's routes, in order: vendor and the script that it follows.
ROUTES = {
    "whole": [("patient", "whole")],
    "silent": [("quick", "silent")],
    "stalling": [("quick", "stalling")],
    "commenting": [("quick", "commenting")],
    "thinking": [("patient", "thinking")],
    "thinking-then-failing": [("patient", "thinking-then-failing")],
    "gated": [("patient", "gated")],
    "gated-whole": [("patient", "gated-whole")],
    "endless": [("narrow", "endless")],
    "narrow-whole": [("narrow", "whole")],
    "flooding": [("patient", "flooding")],
    "picky": [("patient", "picky")],
    "leaking": [("patient", "leaking")],
    "uncounted": [("patient", "uncounted")],
    "cut-then-spare": [("patient", "cut"), ("spare", "spare")],
    "absent-then-spare": [("absent", "x"), ("spare", "spare")],
    "newline": [("newline", "whole")],
    "blanks": [("blanks", "whole")],
    "keyless": [("keyless", "whole")],
}


def whole(call: Call) -> None:
    call.answer(
        WHOLE,
        "Set-Cookie: __cf=1; Path=/",
        "openai-organization: acme-operator",
        "cf-ray: x",
        "Server: vendor",
        "x-request-id: theirs",
        "x-ratelimit-remaining-requests: 3",
    )


def stalling(call: Call) -> None:
    call.stream(chunk(""), chunk("Hel"))
    call.wait_until_left()


def commenting(call: Call) -> None:
    call.stream()
    for number in range(8):
        call.send(b": keepalive %d/8\n\n" % number)
        call.pause(0.1)
    call.send(chunk("Hello") + ENDING)


def thinking(call: Call) -> None:
    call.pause(HEARTBEAT_S * 3.5)
    call.stream(chunk("Hello"), ENDING)


def thinking_then_failing(call: Call) -> None:
    call.pause(HEARTBEAT_S * 1.5)
    call.answer(b'{"error": {"message": "no"}}', status="500 Broken")


def gated(call: Call) -> None:
    call.stream(chunk("Hel"))
    call.vendor.go.wait(20)
    call.send(chunk("lo") + ENDING)


def gated_whole(call: Call) -> None:
    call.vendor.go.wait(20)
    call.answer(WHOLE)


def endless(call: Call) -> None:
    call.stream(chunk("Hel"))
    while not call.left.is_set():
        call.pause(0.05)
        call.send(chunk("lo "))


def flooding(call: Call) -> None:
    call.stream()
    piece = chunk("A" * 65_536)
    with contextlib.suppress(OSError):
        while call.sent_bytes < FLOOD_BYTES:
            call.send(piece)


def picky(call: Call) -> None:
    if "stream_options" in call.payload:
        body = b'{"error": {"message": "Unrecognized request argument: stream_options"}}'
        call.answer(body, status="400 Bad Request")
    else:
        call.stream(chunk("Hello"), chunk(finish="stop"), DONE)


def leaking(call: Call) -> None:
    words = f"{call.vendor.url('patient')} of fault-patient refuses {VENDOR_KEY}"
    body = json.dumps({"error": {"message": words, "code": "bad_value"}}).encode()
    call.answer(body, status="400 Bad Request")


def cut(call: Call) -> None:
    call.stream(chunk(""), chunk("Hel"))
    call.vendor.go.wait(20)
    call.reset()


SCRIPTS = {
    "whole": whole,
    "silent": Call.wait_until_left,
    "stalling": stalling,
    "commenting": commenting,
    "thinking": thinking,
    "thinking-then-failing": thinking_then_failing,
    "gated": gated,
    "gated-whole": gated_whole,
    "endless": endless,
    "flooding": flooding,
    "picky": picky,
    "leaking": leaking,
    "uncounted": lambda call: call.answer(WHOLE.replace(b'"usage"', b'"unused"')),
    "cut": cut,
    "spare": lambda call: call.stream(chunk("Hello"), ENDING),
}


@dataclass
class Ground:
    """The gateway of this file and what stands around it."""

    vendor: RawVendor
    database: Proxy
    redis: Proxy
    gateway: Process
    url: str


@pytest.fixture(scope="module")
def ground(stack: Stack, django_db_blocker) -> Iterator[Ground]:
    database = psycopg.conninfo.conninfo_to_dict(stack.environment["DATABASE_URL"])
    redis = urlsplit(settings.REDIS_URL)
    with (
        RawVendor(SCRIPTS) as vendor,
        Proxy(str(database["host"]), int(database["port"])) as database_proxy,
        Proxy(str(redis.hostname), int(redis.port or 6379)) as redis_proxy,
        django_db_blocker.unblock(),
    ):
        _make_catalog(vendor)
        gateway, url = stack.serve(
            "faults",
            "gateway.asgi:application",
            DATABASE_URL=_through(stack.environment["DATABASE_URL"], database_proxy),
            REDIS_URL=_through(settings.REDIS_URL, redis_proxy),
            FARTHING_HEARTBEAT_S=str(HEARTBEAT_S),
            FARTHING_CORS_ORIGINS=ORIGIN,
        )
        yield Ground(vendor, database_proxy, redis_proxy, gateway, url)
        gateway.stop()


def _through(url: str, proxy: Proxy) -> str:
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    netloc = f"{login}@127.0.0.1:{proxy.port}" if login else f"127.0.0.1:{proxy.port}"
    return parts._replace(netloc=netloc).geturl()


def _make_catalog(vendor: RawVendor) -> None:
    from django.utils import timezone

    from billing.models import Price
    from gateway.models import Model, Route, Vendor

    vendors = {
        name: Vendor.objects.create(
            name=f"fault-{name}", **{"base_url": vendor.url(name), **fields}
        )
        for name, fields in VENDORS.items()
    }
    for name, routes in ROUTES.items():
        model = Model.objects.create(name=f"fault-{name}")
        Price.objects.create(
            model=model.name,
            currency="USD",
            effective_from=timezone.now(),
            input_nanos=1_000_000_000,
            output_nanos=4_000_000_000,
        )
        for priority, (vendor_name, script) in enumerate(routes):
            Route.objects.create(
                model=model, vendor=vendors[vendor_name], vendor_model=script, priority=priority
            )


@pytest.fixture
def alice(ground: Ground, committed, world) -> Callable[..., Caller]:
    def make(**limits) -> Caller:
        tenant = world.tenant(balance="10")
        created = world.key(tenant, **limits)
        return Caller(ground.url, created.secret, tenant, created.key)

    return make


@contextlib.contextmanager
def opened(caller: Caller, model: str, **body) -> Iterator[requests.Response]:
    """A stream of which the caller reads as much as it likes before it leaves."""
    with requests.post(
        f"{caller.base_url}/v1/chat/completions",
        json={"model": model, "stream": True, "messages": [{"role": "user", "content": "Hi."}]}
        | body,
        headers=caller.headers,
        stream=True,
        timeout=20,
    ) as answer:
        yield answer


def text_event(lines: Iterator[bytes]) -> bytes:
    """The next event that holds a text."""
    return next(line for line in lines if b'"content":"H' in line)


def exchange_of(caller: Caller, **fields) -> Exchange:
    return until(Exchange.objects.filter(tenant_id=caller.tenant.pk, **fields).first)


@pytest.fixture
def go(ground: Ground) -> Iterator[threading.Event]:
    """Lets gated vendors go on."""
    ground.vendor.go.clear()
    yield ground.vendor.go
    ground.vendor.go.set()


@pytest.fixture
def database(ground: Ground) -> Iterator[Proxy]:
    yield ground.database
    ground.database.find_answers()
    ground.database.mend()
    caller_is_served(ground)


@pytest.fixture
def redis_store(ground: Ground) -> Iterator[Proxy]:
    yield ground.redis
    ground.redis.mend()


def caller_is_served(ground: Ground) -> None:
    """Leave no test behind with a gateway that has not found PostgreSQL again."""

    from keys.secrets import make

    def answers() -> bool:
        headers = {"Authorization": f"Bearer {make('live').text}"}
        url = f"{ground.url}/v1/chat/completions"
        return requests.post(url, json={}, headers=headers, timeout=5).status_code == 401

    until(answers)


# --- stores -----------------------------------------------------------------------------------


def test_without_redis_requests_are_served_in_time_and_billed(alice, redis_store) -> None:
    limited = alice(requests_per_minute=5, concurrent_requests=2)
    redis_store.cut()
    begun_s = time.monotonic()

    answers = [limited.chat("fault-whole"), limited.chat("fault-uncounted")]

    assert time.monotonic() - begun_s < 5.0
    assert [answer.status_code for answer in answers] == [200, 200]
    assert limited.settled(answers[0]).charge.charge_nanos == COST_NANOS
    (waiting,) = Exchange.objects.filter(tenant_id=limited.tenant.pk).exclude(state="settled")
    assert limited.balance()[1] == waiting.hold_nanos > 0
    until(lambda: Exchange.objects.get(id=waiting.id).state == "estimating")
    assert sweep() >= 1  # no task was told of it: the sweep finds it
    assert limited.settled(answers[1]).charge.usage_source == "estimate"
    assert limited.balance()[1] == 0
    redis_store.mend()
    assert limited.chat("fault-whole").status_code == 200


def test_without_postgresql_a_good_key_gets_503_and_200_when_it_is_back(alice, database) -> None:
    caller = alice()
    assert caller.chat("fault-whole").status_code == 200
    posted = caller.balance()
    database.cut()

    begun_s = time.monotonic()
    for secret in (caller.secret, alice().secret):
        answer = caller.chat("fault-whole", headers={"Authorization": f"Bearer {secret}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["x-should-retry"] == "true"
    assert time.monotonic() - begun_s < 4.0
    assert caller.balance() == posted

    database.mend()
    until(lambda: caller.chat("fault-whole").status_code == 200, seconds=2.0)


def test_a_key_that_is_revoked_while_postgresql_is_away_does_not_come_back(alice, database) -> None:
    from keys.services import revoke_key

    caller = alice()
    assert caller.chat("fault-whole").status_code == 200
    database.cut()
    revoke_key(caller.tenant, caller.key.public_id, actor="tests")
    database.mend()

    statuses = []
    until(lambda: statuses.append(caller.chat("fault-whole").status_code) or statuses[-1] == 401)
    assert set(statuses) <= {503, 401}


def test_a_stream_outlives_postgresql_and_is_settled_when_it_is_back(alice, database, go) -> None:
    caller = alice()
    with opened(caller, "fault-gated") as stream:
        lines = stream.iter_lines()
        text_event(lines)
        exchange = exchange_of(caller)
        database.cut()
        go.set()
        rest = [line for line in lines if line]
    assert rest[-1] == b"data: [DONE]"
    assert b'"error"' not in b"".join(rest)
    assert Exchange.objects.get(id=exchange.id).state == "open"

    database.mend()
    exchange = caller.settled(stream)
    assert (exchange.charge.charge_nanos, exchange.charge.outcome) == (COST_NANOS, "answered")
    assert caller.balance() == (10_000_000_000 - COST_NANOS, 0)


def test_a_hold_whose_answer_is_lost_is_let_go(alice, database) -> None:
    """Written and never answered: the client is told 503, so it must not cost it a hold."""
    caller = alice()
    assert caller.chat("fault-whole").status_code == 200
    caller.settled(caller.chat("fault-whole"))
    before = caller.balance()
    with ThreadPoolExecutor(1) as pool:
        database.lose_answers()
        asking = pool.submit(caller.chat, "fault-whole")
        until(Exchange.objects.filter(tenant_id=caller.tenant.pk, state="open").exists)
        database.cut()
        assert asking.result().status_code == 503
    assert caller.balance()[1] > 0

    database.find_answers()
    database.mend()
    until(lambda: caller.balance() == before)
    assert audit().differences == ()


def test_a_locked_wallet_delays_the_charge_and_not_the_answer(alice, go) -> None:
    caller = alice()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(caller.chat, "fault-gated-whole")
        exchange = exchange_of(caller)
        with psycopg.connect(_database_url()) as other:
            other.execute(
                "SELECT 1 FROM billing_account WHERE tenant_id = %s FOR UPDATE", [caller.tenant.pk]
            )
            begun_s = time.monotonic()
            go.set()
            answer = asking.result()
            assert (answer.status_code, answer.json()["usage"]) == (200, USAGE)
            assert time.monotonic() - begun_s < 2.0
            assert Exchange.objects.get(id=exchange.id).state == "open"
    assert caller.settled(answer).charge.charge_nanos == COST_NANOS
    assert caller.balance() == (10_000_000_000 - COST_NANOS, 0)


def _database_url() -> str:
    from gateway.runtime.process import database_url

    return database_url()


# --- clients ----------------------------------------------------------------------------------


def test_clients_that_leave_give_back_connections_and_slots_and_pay_for_what_came(
    alice, ground
) -> None:
    caller = alice(concurrent_requests=2)
    for _ in range(6):
        until(lambda: _read_and_leave(caller))

    begun_s = time.monotonic()
    until(lambda: caller.chat("fault-narrow-whole").status_code == 200, seconds=2.0)
    assert time.monotonic() - begun_s < 2.0
    until(lambda: ground.vendor.open_calls == 0)
    rows = settled_rows_of(caller, "fault-endless", 6)
    assert {row.charge.outcome for row in rows} == {"client_gone"}
    assert {row.charge.usage_source for row in rows} == {"estimate"}
    assert all(0 < row.charge.output_tokens < 200 for row in rows)
    until(lambda: caller.balance()[1] == 0)


def _read_and_leave(caller: Caller) -> bool:
    """False where a slot is not free yet: a client that has left is noticed a moment later."""
    with opened(caller, "fault-endless") as stream:
        if stream.status_code == 429:
            return False
        text_event(stream.iter_lines())
        return True


def settled_rows_of(caller: Caller, model: str, count: int) -> list[Exchange]:
    rows = Exchange.objects.filter(tenant_id=caller.tenant.pk, state="settled", model=model)
    rows = rows.exclude(charge__outcome="refused").select_related("charge")
    return until(lambda: list(rows) if rows.count() == count else None)


def test_a_slow_reader_slows_the_vendor_and_takes_no_memory(alice, ground) -> None:
    caller = alice()
    assert caller.chat("fault-whole").status_code == 200
    before = resident_bytes(ground.gateway.popen.pid)
    address = urlsplit(ground.url)
    body = json.dumps(
        {
            "model": "fault-flooding",
            "stream": True,
            "messages": [{"role": "user", "content": "Hi."}],
        }
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect((address.hostname, address.port))
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {caller.secret}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        client.sendall(head.encode() + body.encode())
        assert client.recv(64).startswith(b"HTTP/1.1 200")
        (call,) = until(lambda: ground.vendor.calls_of("flooding"))
        until(lambda: is_stuck(call))
        grown = resident_bytes(ground.gateway.popen.pid) - before
        assert call.sent_bytes < FLOOD_BYTES / 2
        assert grown < 20 * MEGABYTE
    until(call.left.is_set)
    exchange = exchange_of(caller, model="fault-flooding")
    until(lambda: Exchange.objects.get(id=exchange.id).state != "open")
    assert Exchange.objects.get(id=exchange.id).status_code == 200


def is_stuck(call: Call) -> bool:
    """True where the vendor could send nothing for a while."""
    sent = call.sent_bytes
    call.left.wait(0.4)
    return 0 < sent == call.sent_bytes


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


# --- vendors ----------------------------------------------------------------------------------


def test_a_silent_vendor_is_504_in_bounded_time_and_its_slot_is_free_again(alice, ground) -> None:
    caller = alice(concurrent_requests=2)
    for _ in range(4):
        begun_s = time.monotonic()
        answer = caller.chat("fault-silent")
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
        assert answer.headers["x-should-retry"] == "false"
        assert 0.25 < time.monotonic() - begun_s < 3.0
    until(lambda: caller.chat("fault-whole").status_code == 200, seconds=2.0)
    rows = settled_rows_of(caller, "fault-silent", 4)
    assert {(row.charge.charge_nanos, row.charge.outcome) for row in rows} == {(0, "failed")}
    until(lambda: ground.vendor.open_calls == 0)


def test_a_stall_in_mid_stream_is_an_error_event_and_what_came_is_charged(alice, ground) -> None:
    caller = alice()
    begun_s = time.monotonic()
    answer = caller.chat("fault-stalling", stream=True)
    assert time.monotonic() - begun_s < 3.0
    *chunks, last = events(answer)
    assert text_of(chunks) == "Hel"
    assert last["error"]["code"] == "upstream_timeout"
    exchange = caller.settled(answer)
    assert (exchange.charge.outcome, exchange.charge.usage_source) == ("partial", "estimate")
    assert 0 < exchange.charge.output_tokens <= 4
    until(lambda: ground.vendor.open_calls == 0)


def test_a_vendors_comments_keep_it_alive_and_the_client_too(alice) -> None:
    """Eight comments, each well within the idle limit, together far beyond it."""
    caller = alice()
    answer = caller.chat("fault-commenting", stream=True)
    assert text_of(events(answer)) == "Hello"
    assert b"keepalive" not in answer.content
    assert answer.content.count(b": waiting\n\n") >= 2
    assert caller.settled(answer).charge.charge_nanos == COST_NANOS


def test_a_client_hears_comments_while_the_vendor_thinks(alice) -> None:
    caller = alice()
    answer = caller.chat("fault-thinking", stream=True)
    assert answer.content.startswith(b": waiting\n\n: waiting\n\n")
    assert text_of(events(answer)) == "Hello"
    assert events(answer)[-1] == "[DONE]"
    exchange = caller.settled(answer)
    assert exchange.charge.charge_nanos == COST_NANOS


def test_after_a_comment_an_error_is_an_event(alice) -> None:
    caller = alice()
    answer = caller.chat("fault-thinking-then-failing", stream=True)
    assert answer.status_code == 200
    assert answer.content.startswith(b": waiting\n\n")
    (error,) = events(answer)
    assert error["error"]["code"] == "upstream_unavailable"
    assert caller.settled(answer).charge.charge_nanos == 0


def test_a_body_that_is_not_streamed_gets_no_comments(alice) -> None:
    caller = alice()
    answer = caller.chat("fault-thinking-then-failing")
    assert answer.status_code == 502
    assert set(answer.json()) == {"error"}


def test_no_other_vendor_is_asked_once_a_client_has_text(alice, ground, go) -> None:
    caller = alice()
    with opened(caller, "fault-cut-then-spare") as stream:
        lines = stream.iter_lines()
        text_event(lines)
        go.set()
        rest = b"".join(lines)
    assert b"upstream_failed_mid_response" in rest
    assert b"[DONE]" not in rest
    assert ground.vendor.calls_of("spare") == []
    exchange = caller.settled(stream)
    assert len(exchange.attempts) == 1
    assert exchange.charge.outcome == "partial"


def test_the_next_vendor_is_asked_where_the_first_is_not_there(alice, ground) -> None:
    caller = alice()
    answer = caller.chat("fault-absent-then-spare", stream=True)
    assert text_of(events(answer)) == "Hello"
    exchange = caller.settled(answer)
    assert [attempt["vendor"] for attempt in exchange.attempts] == ["fault-absent", "fault-spare"]
    assert exchange.charge.charge_nanos == COST_NANOS


def test_a_vendor_that_knows_no_stream_options_is_asked_once_without(alice, ground) -> None:
    caller = alice()
    answer = caller.chat("fault-picky", stream=True)
    assert text_of(events(answer)) == "Hello"
    first, second = ground.vendor.calls_of("picky")
    assert first.payload["stream_options"] == {"include_usage": True}
    assert "stream_options" not in second.payload
    exchange = caller.settled(answer)
    assert exchange.charge.usage_source == "estimate"
    assert (len(exchange.attempts), caller.balance()[1]) == (2, 0)


# --- headers and words ------------------------------------------------------------------------


def test_nothing_of_a_vendors_head_reaches_the_client(alice) -> None:
    answer = alice().chat("fault-whole")
    assert answer.status_code == 200
    lower = {name.lower() for name in answer.headers}
    assert not lower & {"set-cookie", "openai-organization", "cf-ray"}
    assert "x-ratelimit-remaining-requests" not in lower
    assert answer.headers["x-request-id"].startswith("req_")
    assert "vendor" not in answer.headers.get("server", "")
    assert int(answer.headers["content-length"]) == len(answer.content)


def test_nothing_of_the_clients_head_reaches_the_vendor(alice, ground) -> None:
    caller = alice()
    caller.chat(
        "fault-whole",
        headers={
            "Proxy-Authorization": "Basic CANARY",
            "Connection": "X-Secret, keep-alive",
            "X-Secret": "CANARY",
            "TE": "trailers",
            "Cookie": "session=CANARY",
            "X-Forwarded-For": "203.0.113.9",
            "OpenAI-Organization": "CANARY",
        },
    )
    call = ground.vendor.calls_of("whole")[-1]
    assert "CANARY" not in call.head.decode("latin-1")
    assert caller.secret not in call.head.decode("latin-1")
    assert set(call.headers) <= {
        "host",
        "authorization",
        "content-type",
        "content-length",
        "accept-encoding",
        "user-agent",
        "connection",
    }
    assert call.path == "/patient/v1/chat/completions"
    assert call.headers["host"] == f"127.0.0.1:{ground.vendor.port}"


@pytest.mark.parametrize(
    ("model", "authorization"),
    [("newline", "Bearer vk-1"), ("blanks", "Bearer vk-2"), ("keyless", None)],
)
def test_a_vendors_credential_is_sent_without_what_was_pasted_around_it(
    alice, ground, model: str, authorization: str | None
) -> None:
    assert alice().chat(f"fault-{model}").status_code == 200
    call = ground.vendor.calls_of("whole")[-1]
    assert call.path == f"/{model}/v1/chat/completions"
    assert call.headers.get("authorization") == authorization


def test_no_error_names_the_vendor_its_address_or_our_credential(alice, ground) -> None:
    caller = alice()
    answer = caller.chat("fault-leaking")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_value")
    for secret in (VENDOR_KEY, "fault-patient", str(ground.vendor.port), "127.0.0.1", "/v1"):
        assert secret not in answer.text
    exchange = caller.settled(answer)
    assert "refuses ••••" in exchange.attempts[0]["vendor_message"]
    transcript = until(Transcript.objects.filter(exchange_id=exchange.id).first)
    assert VENDOR_KEY not in unpack(bytes(transcript.vendor_answer)).decode()
    assert VENDOR_KEY not in json.dumps(transcript.legs)
    assert VENDOR_KEY not in ground.gateway.text()


def test_a_browsers_preflight_needs_no_key(ground) -> None:
    answer = requests.options(
        f"{ground.url}/v1/chat/completions",
        headers={
            "Origin": ORIGIN,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        },
        timeout=10,
    )
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert {"authorization", "content-type"} <= set(
        answer.headers["access-control-allow-headers"].split(", ")
    )
    assert "access-control-allow-credentials" not in answer.headers


def test_a_browser_can_read_our_errors_and_answers(ground, alice) -> None:
    caller = alice()
    bad = caller.chat("fault-whole", headers={"Authorization": "Bearer no", "Origin": ORIGIN})
    assert bad.status_code == 401
    good = caller.chat("fault-whole", headers={"Origin": ORIGIN})
    assert good.status_code == 200
    listed = requests.get(f"{ground.url}/v1/models", headers={"Origin": ORIGIN}, timeout=10)
    assert listed.status_code == 401
    for answer in (bad, good, listed):
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


def test_another_origin_gets_no_leave(ground, alice) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    url = f"{ground.url}/v1/chat/completions"
    preflight = requests.options(url, headers=headers, timeout=10)
    answer = alice().chat("fault-whole", headers={"Origin": "https://evil.example"})
    assert answer.status_code == 200
    for one in (preflight, answer):
        assert "access-control-allow-origin" not in one.headers


def test_the_books_are_in_order_after_all_that(ground, committed) -> None:
    assert audit().differences == ()
    assert not Account.objects.filter(kind="wallet", held_nanos__lt=0).exists()
