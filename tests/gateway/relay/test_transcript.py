"""From the driver's values through a pipe to a row."""

import marshal
from dataclasses import replace
from typing import Any

import orjson
import pytest

from gateway.relay.attempt import Attempt
from gateway.relay.capture import unpack
from gateway.relay.failures import Fault
from gateway.relay.transcript import Sent, row_of, spoken
from tests.gateway.relay.driver import CREDENTIAL, a_vendor, accepted, run
from tests.gateway.relay.playbook import SSE, relay

ANSWER = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
SENT = Sent(200, [(b"content-type", b"text/event-stream")], 0.0, 42, None, None)
LEGS, SUMMARY, REQUEST, VENDOR_ANSWER, CLIENT_ANSWER = range(2, 7)


def row(
    answer: bytes = ANSWER,
    *,
    sent: Sent = SENT,
    attempts: int = 1,
    fault: Fault | None = None,
    **changes: Any,
) -> tuple[Any, ...] | None:
    """The row of an exchange after a real trip through marshal."""
    heard = None

    async def work() -> None:
        nonlocal heard
        known = accepted(**changes)
        origin_s = known.arrival.started_s
        made = []
        for number in range(attempts):
            attempt = Attempt(
                known.routes[0], relay(), b'{"model":"vendor-m"}', origin_s + 0.002, asks_usage=True
            )
            if number == attempts - 1:
                attempt.answered(200, [*SSE, (b"set-cookie", b"CANARY")], origin_s + 0.5)
                attempt.received(answer, origin_s + 0.75)
            attempt.fault = fault
            made.append(attempt)
        said = spoken(known, made, replace(sent, at_s=sent.at_s and origin_s + sent.at_s))
        heard = row_of(marshal.loads(marshal.dumps(said)))

    run(work)
    return heard


def test_four_legs_stand_in_two_bodies() -> None:
    found = row(sent=replace(SENT, at_s=0.8))
    legs = found[LEGS]
    assert found[1] == 7
    assert orjson.loads(unpack(found[REQUEST]))["messages"][0]["content"] == "Say hello."
    assert unpack(found[VENDOR_ANSWER]) == ANSWER
    assert found[CLIENT_ANSWER] is None
    (vendor,) = legs["vendor"]
    assert (vendor["vendor"], vendor["vendor_model"]) == ("north", "vendor-m")
    assert vendor["url"] == "http://127.0.0.1:1/v1/chat/completions"
    assert (vendor["at_ms"], vendor["response_at_ms"]) == (2.0, 750.0)
    assert vendor["response_size_bytes"] == len(ANSWER)
    assert (legs["answer"]["status"], legs["answer"]["at_ms"]) == (200, 800.0)


def test_a_client_that_left_before_the_head_has_no_fourth_leg() -> None:
    assert row()[LEGS]["answer"] is None


def test_every_attempt_is_a_leg_and_the_last_ones_body_is_kept() -> None:
    found = row(attempts=2, fault=Fault.CONNECT_FAILED)
    first, second = found[LEGS]["vendor"]
    assert (first["number"], second["number"]) == (1, 2)
    assert first["response_at_ms"] is None
    assert "connection failed" in orjson.dumps(first).decode()
    assert unpack(found[VENDOR_ANSWER]) == ANSWER


def test_our_own_error_is_kept_as_it_went_out() -> None:
    error = b'{"error":{"message":"no","type":"t","param":null,"code":"c"}}'
    found = row(sent=replace(SENT, status=502, at_s=0.8, error_body=error))
    assert unpack(found[CLIENT_ANSWER]) == error


def test_no_secret_is_stored() -> None:
    said = ANSWER.replace(b"Hello", f"your key is {CREDENTIAL}".encode())
    found = row(said)
    assert CREDENTIAL not in unpack(found[VENDOR_ANSWER]).decode()
    assert "your key is ••••" in unpack(found[VENDOR_ANSWER]).decode()
    assert CREDENTIAL not in orjson.dumps(found[LEGS]).decode()
    assert "CANARY" not in orjson.dumps(found[LEGS]).decode()


def test_a_short_credential_blots_out_no_words() -> None:
    vendor = a_vendor(request_headers=((b"authorization", b"Bearer H"),))
    assert b"Hello" in unpack(row(vendor=vendor)[VENDOR_ANSWER])


@pytest.mark.parametrize(
    ("policy", "bodies"), [("content", True), ("summaries", False), ("nothing", None)]
)
def test_a_tenant_says_what_is_stored(policy: str, bodies: bool | None) -> None:
    from tests.gateway.runtime.conftest import PLAIN

    found = row(principal=replace(PLAIN, tenant_id=7, transcript_policy=policy))
    if bodies is None:
        assert found is None
        return
    assert (found[REQUEST] is not None) is bodies
    assert (found[VENDOR_ANSWER] is not None) is bodies
    assert (found[SUMMARY] is not None) is not bodies
