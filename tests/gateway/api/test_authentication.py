import datetime as dt
import logging

import pytest
import time_machine
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from gateway.api import authentication
from gateway.api.authentication import bearer_text
from gateway.errors import invalid_api_key
from keys.models import ApiKey, TenantState
from keys.services import revoke_key

REFUSED = invalid_api_key().as_dict()


def said(*values: str, name: bytes = b"authorization") -> str | None:
    return bearer_text([(name, value.encode("latin-1")) for value in values])


@pytest.mark.parametrize(
    "value", ["Bearer k", "bearer k", "BEARER k", "Bearer   k", " Bearer k ", "Bearer\tk\t"]
)
def test_case_and_blanks_around_do_not_matter(value: str) -> None:
    assert said(value) == "k"


@pytest.mark.parametrize(
    "value", ["", "k", "Bearer", "Bearer ", "Basic k", "Bearer k l", "Bearerk"]
)
def test_what_is_no_bearer_is_no_key(value: str) -> None:
    assert said(value) is None


def test_x_api_key_counts_where_there_is_no_bearer() -> None:
    assert said(" k ", name=b"x-api-key") == "k"
    assert bearer_text([(b"authorization", b"Basic x"), (b"x-api-key", b"k")]) == "k"
    assert bearer_text([(b"authorization", b"Bearer a"), (b"x-api-key", b"b")]) == "a"


def test_two_keys_that_differ_are_none() -> None:
    assert said("Bearer a", "Bearer b") is None
    assert said("Bearer a", "bearer  a") == "a"
    assert said("a", "b", name=b"x-api-key") is None


@given(st.binary(max_size=40))
def test_any_bytes_can_be_sent(value: bytes) -> None:
    bearer_text([(b"authorization", value)])
    bearer_text([(b"authorization", b"Bearer " + value)])


@pytest.fixture
def made(world):
    return world.key(world.tenant())


def test_a_key_opens_its_own_tenant(caller, made) -> None:
    assert caller(made.secret).get("/v1/key").json()["id"] == made.key.public_id
    by_header = caller(None).get("/v1/key", **{"x-api-key": made.secret})
    assert by_header.json()["id"] == made.key.public_id


def test_every_wrong_key_gets_the_same_401_and_is_echoed_nowhere(caller, made, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    secret = made.secret
    wrong = [
        None,
        "",
        " sk-live-SECRET123",
        "sk-live-SECRET123x",
        secret[:-1],
        secret[:-1] + "é",
        secret + "x",
        secret.replace("_live_", "_test_"),
        "SECRET123" * 600,
        secret + " SECRET123",
    ]
    for text in wrong:
        answer = caller(text).get("/v1/key")
        assert (answer.status_code, answer.json()) == (401, REFUSED)
        assert answer["x-should-retry"] == "false"
        assert answer["www-authenticate"] == "Bearer"
    assert "SECRET123" not in caplog.text
    assert secret not in caplog.text


def test_a_revoked_key_is_refused(caller, made) -> None:
    revoke_key(made.key.tenant, made.key.public_id, actor="tests")
    assert caller(made.secret).get("/v1/key").json() == REFUSED


def test_a_paused_key_is_refused(caller, made) -> None:
    ApiKey.objects.filter(pk=made.key.pk).update(paused_at=timezone.now())
    assert caller(made.secret).get("/v1/key").json() == REFUSED


def test_a_key_is_refused_from_its_expiry_on(caller, world) -> None:
    expires_at = timezone.now() + dt.timedelta(hours=1)
    made = world.key(world.tenant(), expires_at=expires_at)
    assert caller(made.secret).get("/v1/key").status_code == 200
    with time_machine.travel(expires_at, tick=False):
        assert caller(made.secret).get("/v1/key").json() == REFUSED


def test_a_suspended_tenant_is_told_so(caller, made) -> None:
    tenant = made.key.tenant
    tenant.state = TenantState.SUSPENDED
    tenant.save(update_fields=["state"])
    answer = caller(made.secret).get("/v1/key")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "tenant_suspended")


def test_a_wrong_network_is_told_so(caller, world) -> None:
    made = world.key(world.tenant(), allowed_ips=["203.0.113.0/24"])
    answer = caller(made.secret).get("/v1/key")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ip_not_allowed")
    forged = caller(made.secret).get("/v1/key", **{"x-forwarded-for": "203.0.113.7"})
    assert forged.status_code == 403


def test_while_the_database_is_away_a_key_is_not_at_fault(caller, made, settings) -> None:
    from django.db import connections

    away = connections.create_connection("default")
    away.settings_dict = {**away.settings_dict, "HOST": "127.0.0.1", "PORT": "1"}
    patch = pytest.MonkeyPatch()
    patch.setattr(authentication, "connection", away)
    try:
        answer = caller(made.secret).get("/v1/key")
    finally:
        patch.undo()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
    assert answer["x-should-retry"] == "true"
    assert answer["retry-after"] == "5"
