"""What breaks around one gateway process: PostgreSQL and Redis, for real.

Between the gateway and its stores stand proxies that a test cuts; its vendor is a raw socket that
a test scripts. One gateway serves the whole file, and every test mends what it breaks.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
import pytest
import requests
from django.conf import settings
from django.db import connection

from billing.audit import audit
from billing.models import Account, Exchange
from billing.processes import LIFE_LOCK
from gateway.exchanges.recovery import sweep
from tests.api.conftest import Caller
from tests.proxy import Proxy
from tests.raw_vendor import ENDING, USAGE, WHOLE, Call, RawVendor, chunk
from tests.stack import Process, Stack, until

FROZEN_S = 12.0  # what a request may take while PostgreSQL does not answer, on a busy machine too
COST_NANOS = 30_000  # of USAGE at 1 and 4 a million


def gated(call: Call) -> None:
    call.stream(chunk("Hel"))
    call.vendor.go.wait(20)
    call.send(chunk("lo") + ENDING)


def gated_whole(call: Call) -> None:
    call.vendor.go.wait(20)
    call.answer(WHOLE)


SCRIPTS = {
    "whole": lambda call: call.answer(WHOLE),
    "gated": gated,
    "gated-whole": gated_whole,
    "uncounted": lambda call: call.answer(WHOLE.replace(b'"usage"', b'"unused"')),
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

    row = Vendor.objects.create(name="fault", base_url=vendor.url("fault"))
    for name in SCRIPTS:
        model = Model.objects.create(name=f"fault-{name}")
        Price.objects.create(
            model=model.name,
            currency="USD",
            effective_from=timezone.now(),
            input_nanos=1_000_000_000,
            output_nanos=4_000_000_000,
        )
        Route.objects.create(model=model, vendor=row, vendor_model=name)


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


def hears_of_changes(process_id: int) -> bool:
    """Say whether a gateway listens to PostgreSQL: until then it keeps nothing in memory."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND classid = %s AND objid = %s",
            [LIFE_LOCK, process_id],
        )
        return cursor.fetchone() is not None


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
    process_id = caller.settled(caller.chat("fault-whole")).process_id
    until(lambda: hears_of_changes(process_id))
    caller.settled(caller.chat("fault-whole"))  # from now on its key is known without a question
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


def test_a_frozen_postgresql_is_503_in_time_and_loses_nothing(alice, database) -> None:
    """It takes every question and answers none: nobody knows what it will have written."""
    callers = [alice() for _ in range(3)]
    for caller in callers:
        caller.settled(caller.chat("fault-whole"))
    before = [caller.balance() for caller in callers]

    database.freeze()
    begun_s = time.monotonic()
    with ThreadPoolExecutor(6) as pool:
        keyed = {"Idempotency-Key": f"frozen-{callers[0].tenant.pk}"}
        asking = [pool.submit(caller.chat, "fault-whole") for caller in callers * 2]
        asking.append(pool.submit(callers[0].chat, "fault-whole", headers=keyed))
        answers = [one.result() for one in asking]
    assert time.monotonic() - begun_s < FROZEN_S
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
    database.thaw()

    until(lambda: callers[0].chat("fault-whole").status_code == 200)
    for caller in callers:
        until(lambda caller=caller: caller.balance()[1] == 0, seconds=30.0)
        charged = Exchange.objects.filter(tenant_id=caller.tenant.pk, charge__charge_nanos__gt=0)
        assert charged.count() == (2 if caller is callers[0] else 1)
    assert [caller.balance() for caller in callers[1:]] == before[1:]
    assert audit().differences == ()


def test_neighbours_of_a_locked_wallet_are_served(alice) -> None:
    stuck, calm = alice(), alice()
    assert stuck.chat("fault-whole").status_code == calm.chat("fault-whole").status_code == 200
    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(_database_url()) as other:
            other.execute(
                "SELECT 1 FROM billing_account WHERE tenant_id = %s FOR UPDATE", [stuck.tenant.pk]
            )
            asking = pool.submit(stuck.chat, "fault-whole")
            begun_s = time.monotonic()
            assert [calm.chat("fault-whole").status_code for _ in range(5)] == [200] * 5
            assert time.monotonic() - begun_s < 2.0
            assert not asking.done()
        assert asking.result().status_code == 200


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


def test_the_books_are_in_order_after_all_that(ground, committed) -> None:
    assert audit().differences == ()
    assert not Account.objects.filter(kind="wallet", held_nanos__lt=0).exists()
