"""Fifty requests at once against money for ten. The same race with the guard out must be lost."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import requests
from django.db import IntegrityError, connection

from billing.audit import audit
from billing.models import Account
from tests.stack import until

CALLERS = 50
PAYABLE = 10
SLOW_MODEL = "farthing-race-slow"


@pytest.fixture
def slow_model(stack, committed) -> str:
    """A model whose vendor takes a second, so that all fifty holds stand at once."""
    from gateway.models import Model, Route, Vendor

    if not Model.objects.filter(name=SLOW_MODEL).exists():
        model = Model.objects.create(name=SLOW_MODEL)
        vendor = Vendor.objects.get(name="benchecho")
        Route.objects.create(model=model, vendor=vendor, vendor_model="echo-slow-1500")
    return SLOW_MODEL


def call_together(stack, secret: str, model: str, count: int) -> list[requests.Response]:
    barrier = threading.Barrier(count)
    body = json.dumps(
        {
            "model": model,
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "Say hello."}],
        }
    )

    def call(_number: int) -> requests.Response:
        barrier.wait()
        return requests.post(
            f"{stack.base_url}/v1/chat/completions",
            data=body,
            headers={"Authorization": f"Bearer {secret}"},
            timeout=30,
        )

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


def one_hold_nanos(stack, world, model: str) -> int:
    rich = world.tenant(balance="1")
    (answer,) = call_together(stack, world.key(rich).secret, model, 1)
    return int(answer.headers["x-farthing-hold"].replace(".", ""))


def tenant_with(world, nanos: int):
    return world.tenant(balance=f"{nanos // 10**9}.{nanos % 10**9:09d}")


def wait_until_settled(tenant) -> Account:
    return until(Account.objects.filter(tenant=tenant, kind="wallet", held_nanos=0).first)


def test_exactly_the_payable_number_succeeds(stack, world, slow_model, ready_price) -> None:
    ready_price(slow_model)
    hold = one_hold_nanos(stack, world, slow_model)
    tenant = tenant_with(world, hold * PAYABLE + hold // 2)

    answers = call_together(stack, world.key(tenant).secret, slow_model, CALLERS)

    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200] * PAYABLE + [429] * (CALLERS - PAYABLE)
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "in_flight_budget_exhausted"
    assert refused.headers["x-should-retry"] == "true"
    assert wait_until_settled(tenant).posted_nanos >= 0
    assert audit().differences == ()


@contextmanager
def guard_taken_out():
    """The hold without its condition, and the table without its last word."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_functiondef('farthing_hold(jsonb)'::regprocedure)")
        (original,) = cursor.fetchone()
        assert "item.hold_nanos <= room" in original
        cursor.execute(original.replace("item.hold_nanos <= room", "true"))
        cursor.execute("ALTER TABLE billing_account DROP CONSTRAINT never_overspent")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(original)
            cursor.execute(
                "ALTER TABLE billing_account ADD CONSTRAINT never_overspent CHECK"
                " (posted_nanos >= held_nanos - credit_limit_nanos) NOT VALID"
            )


def test_without_the_guard_the_race_is_lost(stack, world, slow_model, ready_price) -> None:
    ready_price(slow_model)
    hold = one_hold_nanos(stack, world, slow_model)
    tenant = tenant_with(world, hold * PAYABLE + hold // 2)
    secret = world.key(tenant).secret

    with guard_taken_out():
        answers = call_together(stack, secret, slow_model, CALLERS)

    assert sum(answer.status_code == 200 for answer in answers) > PAYABLE
    wallet = wait_until_settled(tenant)
    wallet.credit_limit_nanos = max(-wallet.posted_nanos, 0)  # other tests audit this ledger too
    wallet.save(update_fields=["credit_limit_nanos"])


def test_the_last_word_is_the_tables(world, committed) -> None:
    tenant = world.tenant(balance="1")
    with pytest.raises(IntegrityError, match="never_overspent"):
        Account.objects.filter(tenant=tenant).update(held_nanos=1_000_000_001)
