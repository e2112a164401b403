"""How vendors answered lately, by what is kept of attempts."""

from datetime import timedelta

import pytest
from django.utils import timezone

from gateway.exchanges import vendor_health as module
from gateway.exchanges.vendor_health import VendorHealth, vendor_health
from tests.web.relayed import Relayed

pytestmark = pytest.mark.django_db


@pytest.fixture
def relayed(world):
    tenant = world.tenant()
    keys = {kind: world.key(tenant, kind=kind).key for kind in ("live", "test")}
    price = world.price(f"model-of-{tenant.slug}")

    def made(*attempts: dict, ago: timedelta = timedelta(minutes=1), kind: str = "live") -> None:
        at = timezone.now() - ago
        of_kind = {"key": keys[kind], "price": price if kind == "live" else None}
        one = Relayed(tenant=tenant, at=at, **of_kind).hold()
        one.settle(attempts=[{"n": n, **attempt} for n, attempt in enumerate(attempts, 1)])

    return made


def call(status: int | None = 200, first_ms: int | None = 40, **more) -> dict:
    said = {"vendor": "acme", "status": status, "started_ms": 2, "first_byte_ms": first_ms, **more}
    return {name: value for name, value in said.items() if value is not None}


def test_without_calls_nothing_is_said_of_a_vendor(relayed):
    relayed()
    assert vendor_health(timezone.now()) == {}


@pytest.mark.parametrize(
    ("attempt", "failed"),
    [
        (call(), 0),
        (call(error="upstream_failed_mid_response"), 1),
        (call(400), 0),
        (call(404, error="model_not_found"), 0),
        (call(401), 1),
        (call(429), 1),
        (call(503), 1),
        (call(None, None, error="connection failed"), 1),
        (call(None, None), 0),  # the client left before there was an answer
    ],
)
def test_what_counts_as_a_failure(relayed, attempt, failed):
    relayed(attempt)
    assert vendor_health(timezone.now())["acme"].failed == failed


def test_every_attempt_counts_for_its_vendor(relayed):
    relayed(call(503, None), call(first_ms=142, vendor="other"))
    relayed(call(first_ms=42))
    relayed(call(first_ms=102))
    assert vendor_health(timezone.now()) == {
        "acme": VendorHealth(calls=3, failed=1, first_byte_ms=70),
        "other": VendorHealth(calls=1, failed=0, first_byte_ms=140),
    }


def test_tests_and_what_is_long_ago_are_left_out(relayed):
    relayed(call(), kind="test")
    relayed(call(), ago=module.HEALTH_PERIOD + timedelta(minutes=1))
    assert vendor_health(timezone.now()) == {}


def test_the_look_back_is_bounded(relayed, monkeypatch):
    monkeypatch.setattr(module, "HEALTH_EXCHANGES", 2)
    relayed(call(503), ago=timedelta(minutes=9))
    relayed(call(), ago=timedelta(minutes=2))
    relayed(call())
    assert vendor_health(timezone.now())["acme"] == VendorHealth(2, 0, 38)
