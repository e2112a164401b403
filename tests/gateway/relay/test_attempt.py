from typing import Any

import pytest

from gateway.relay.attempt import MESSAGE_CHARS, Attempt
from gateway.relay.failures import Fault
from gateway.runtime.snapshot import RouteTo
from tests.gateway.relay.driver import CREDENTIAL, a_vendor
from tests.gateway.relay.playbook import JSON, SSE, relay


def an_attempt(**changes: Any) -> Attempt:
    route = RouteTo(a_vendor(**changes), "vendor-m", None, 0, 1)
    return Attempt(route, relay(), b"{}", 10.002, asks_usage=True)


def refused(message: str, **changes: Any) -> Attempt:
    attempt = an_attempt(**changes)
    attempt.answered(400, JSON, 10.1)
    attempt.relay.receive_head(400, JSON)
    attempt.relay.receive(b'{"error":{"message":"%b"}}' % message.encode())
    attempt.relay.receive_end()
    return attempt


def test_an_attempt_says_when_it_was_what() -> None:
    attempt = an_attempt()
    attempt.answered(200, SSE, 10.5)
    attempt.received(b"data: ", 10.703)
    attempt.received(b"more", 10.9)
    attempt.ended_s = 14.861
    assert attempt.summary(2, 10.0) == {
        "n": 2,
        "vendor": "north",
        "vendor_model": "vendor-m",
        "status": 200,
        "started_ms": 2,
        "first_byte_ms": 703,
        "ended_ms": 4861,
    }
    assert attempt.last_received_s == 10.9
    assert attempt.capture.size_bytes == 10


def test_what_was_not_reached_is_left_out() -> None:
    attempt = an_attempt()
    attempt.fault = Fault.CONNECT_TIMEOUT
    attempt.relay.receive_fault(Fault.CONNECT_TIMEOUT, request_sent=False)
    said = attempt.summary(1, 10.0)
    assert said["error"] == "upstream_timeout"
    assert "status" not in said
    assert "first_byte_ms" not in said


def test_a_fault_behind_a_whole_answer_is_named() -> None:
    attempt = an_attempt()
    attempt.fault = Fault.CONNECTION_LOST
    assert attempt.summary(1, 10.0)["error"] == "connection lost"


def test_a_vendors_words_are_kept_for_staff_without_secrets() -> None:
    said = refused(f"{CREDENTIAL} is wrong, sk-abcdefghijklmnop1234 too").summary(1, 10.0)
    assert said["vendor_message"].startswith("•••• is wrong, ")
    assert "abcdefghijklmnop" not in said["vendor_message"]


@pytest.mark.parametrize("credential", ["", "a", "is"])
def test_a_credential_that_is_a_word_blots_out_nothing(credential: str) -> None:
    said = refused("This is a reason", credential=credential).summary(1, 10.0)
    assert said["vendor_message"] == "This is a reason"


def test_a_vendors_words_have_a_bound() -> None:
    assert len(refused("x" * 2_000).summary(1, 10.0)["vendor_message"]) == MESSAGE_CHARS


def test_of_a_head_is_kept_what_reading_the_body_again_needs() -> None:
    attempt = an_attempt()
    attempt.answered(200, [*SSE, (b"set-cookie", b"x"), (b"content-encoding", b"gzip")], 10.1)
    assert attempt.kept_head() == {
        "status": 200,
        "headers": [["content-type", "text/event-stream"], ["content-encoding", "gzip"]],
    }
