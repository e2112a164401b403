"""A gateway that is killed in mid-stream: its exchange is settled once, and nothing stays held."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import requests
from django.db import connection
from django.utils import timezone

from billing.audit import audit
from billing.messages import INTERRUPTED
from billing.models import Account, Charge, EstimateJob, Exchange, GatewayProcess
from gateway.exchanges import estimating
from gateway.exchanges.recovery import sweep
from gateway.models import Model, Route, Vendor
from tests.stack import until

SLOW = "farthing-kill-slow"
SILENT = "farthing-kill-silent"


@pytest.fixture
def models(stack, committed, ready_price) -> None:
    vendor = Vendor.objects.get(name="benchecho")
    for name, vendor_model in ((SLOW, "echo-chunks-400-50"), (SILENT, "echo-never")):
        model, _ = Model.objects.get_or_create(name=name, family="qwen2.5")
        Route.objects.get_or_create(model=model, vendor=vendor, vendor_model=vendor_model)
        ready_price(name)


@pytest.fixture
def swept(settings):
    """Sweeps as if the killed gateway had been silent for minutes."""
    settings.GATEWAY_DEAD_AFTER_S = 2

    def run(exchange: Exchange) -> Exchange:
        GatewayProcess.objects.filter(pk=exchange.process_id).update(
            seen_at=timezone.now() - timedelta(minutes=5)
        )
        with connection.cursor() as cursor:
            cursor.execute("SELECT now() - pg_postmaster_start_time() > interval '3 s'")
            assert cursor.fetchone() == (True,)
        until(lambda: sweep() is not None and _state(exchange) == "settled")
        return Exchange.objects.select_related("charge").get(id=exchange.id)

    return run


def _silence(exchange: Exchange) -> None:
    long_ago = timezone.now() - timedelta(minutes=5)
    GatewayProcess.objects.filter(pk=exchange.process_id).update(seen_at=long_ago)


def _state(exchange: Exchange) -> str:
    return Exchange.objects.get(id=exchange.id).state


def ask(url: str, secret: str, model: str) -> requests.Response:
    return requests.post(
        f"{url}/v1/chat/completions",
        data=json.dumps(
            {
                "model": model,
                "stream": True,
                "messages": [{"role": "user", "content": "benchmark"}],
            }
        ),
        headers={"Authorization": f"Bearer {secret}"},
        stream=True,
        timeout=30,
    )


def wallet(tenant) -> Account:
    return Account.objects.get(tenant=tenant, kind="wallet")


def test_what_was_delivered_is_charged_and_the_rest_is_free_again(
    stack, world, models, swept
) -> None:
    tenant = world.tenant(balance="1")
    gateway, url = stack.serve("killed", "gateway.asgi:application")
    answer = ask(url, world.key(tenant).secret, SLOW)
    lines = answer.iter_lines()
    exchange = until(Exchange.objects.filter(tenant_id=tenant.pk).first)
    while not EstimateJob.objects.filter(exchange_id=exchange.id).exists():
        next(lines)
    assert wallet(tenant).held_nanos == exchange.hold_nanos > 0

    gateway.kill()
    answer.close()
    exchange = swept(exchange)

    assert exchange.charge.outcome == "gateway_died"
    assert exchange.charge.usage_source == "estimate"
    assert exchange.charge.output_tokens > 0
    assert exchange.message["user_message"] == INTERRUPTED
    account = wallet(tenant)
    assert account.held_nanos == 0
    assert account.posted_nanos == 1_000_000_000 - exchange.charge.charge_nanos
    assert not EstimateJob.objects.filter(exchange_id=exchange.id).exists()
    assert audit().differences == ()


def test_with_nothing_delivered_nothing_is_charged(stack, world, models, swept) -> None:
    tenant = world.tenant(balance="1")
    gateway, url = stack.serve("killed", "gateway.asgi:application")
    secret = world.key(tenant).secret
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, url, secret, SILENT)
        exchange = until(Exchange.objects.filter(tenant_id=tenant.pk).first)
        gateway.kill()
        with pytest.raises(requests.ConnectionError):
            asking.result()
    exchange = swept(exchange)
    assert Charge.objects.get(exchange_id=exchange.id).charge_nanos == 0
    assert wallet(tenant).available_nanos == 1_000_000_000
    assert audit().differences == ()


def test_sweeping_twice_or_at_once_settles_once(stack, world, models, swept) -> None:
    tenant = world.tenant(balance="1")
    gateway, url = stack.serve("killed", "gateway.asgi:application")
    answer = ask(url, world.key(tenant).secret, SLOW)
    lines = answer.iter_lines()
    next(lines)
    exchange = until(Exchange.objects.filter(tenant_id=tenant.pk).first)
    gateway.kill()
    answer.close()

    swept(exchange)
    sweep()
    assert estimating.settle_by_estimate(exchange.id) is None

    assert Charge.objects.filter(exchange_id=exchange.id).count() == 1
    assert wallet(tenant).held_nanos == 0
    assert audit().differences == ()


def test_a_living_gateway_keeps_its_stream(stack, world, models, settings) -> None:
    tenant = world.tenant(balance="1")
    answer = ask(stack.base_url, world.key(tenant).secret, SLOW)
    lines = answer.iter_lines()
    next(lines)
    exchange = until(Exchange.objects.filter(tenant_id=tenant.pk).first)

    sweep()

    assert _state(exchange) == "open"
    answer.close()
    until(lambda: _state(exchange) == "settled")


def test_an_orderly_stop_settles_what_it_cuts(stack, world, models) -> None:
    tenant = world.tenant(balance="1")
    gateway, url = stack.serve("stopped", "gateway.asgi:application")
    answer = ask(url, world.key(tenant).secret, SLOW)
    lines = answer.iter_lines()
    for _ in range(10):
        next(lines)

    gateway.stop()
    answer.close()

    exchange = Exchange.objects.get(tenant_id=tenant.pk)
    until(lambda: _state(exchange) == "settled")
    assert Charge.objects.get(exchange_id=exchange.id).charge_nanos > 0
    assert audit().differences == ()


def test_a_gateway_that_is_too_busy_to_beat_keeps_its_stream(stack, world, models) -> None:
    tenant = world.tenant(balance="1")
    answer = ask(stack.base_url, world.key(tenant).secret, SLOW)
    lines = answer.iter_lines()
    next(lines)
    exchange = until(Exchange.objects.filter(tenant_id=tenant.pk).first)
    _silence(exchange)

    sweep()

    assert _state(exchange) == "open"
    answer.close()
    until(lambda: _state(exchange) == "settled")
