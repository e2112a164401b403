"""How an answer ends: in order, cut, late, or by us."""

import json

import pytest

from gateway.relay.failures import Fault
from tests.gateway.relay.playbook import (
    DONE,
    HELLO,
    JSON,
    ROLE,
    SSE,
    body,
    chunk,
    client_values,
    completion,
    counts,
    event,
    events,
    ours,
    relay,
    run,
)


def test_a_cut_without_finish_is_one_error_event_and_no_end_mark():
    answer = relay()
    out = run(answer, events(ROLE, chunk("The answer"), chunk(" is")))
    *passed, error = client_values(out)
    assert passed == [ours(ROLE), ours(chunk("The answer")), ours(chunk(" is"))]
    assert set(error) == {"error"}
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert error["error"]["code"] == "upstream_failed_mid_response"
    assert answer.error_in_stream
    assert not answer.complete
    assert answer.failure is None
    assert answer.mid_stream_failure.may_have_billed
    assert answer.error_code == "upstream_failed_mid_response"


def test_an_end_mark_without_finish_reason_is_a_good_end():
    answer = relay()
    out = run(answer, events(ROLE, chunk("Hello"), chunk()) + DONE)
    assert answer.complete
    assert answer.finish_reason is None
    assert out.endswith(DONE)


def test_a_finish_reason_without_end_mark_is_a_good_end():
    answer = relay()
    assert run(answer, HELLO).endswith(DONE)
    assert answer.complete


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\n\n",
        b": only comments\n\n",
        b"data: [DONE]\n\n",
        b"<html><h1>Hello</h1></html>",
        b"internal error",
        b"{",
        b"[]",
        b"null",
        body({"id": "x"}),
        body({"choices": []}),
        body({"choices": ["a"]}),
        body({"choices": None}),
        b"[" * 100_000,
    ],
)
def test_what_is_no_answer_is_a_502(stream, sent):
    answer = relay(stream=stream)
    assert run(answer, sent) == b""
    assert not answer.complete
    assert answer.failure.error.status == 502
    assert answer.failure.error.code == "upstream_failed_mid_response"
    assert not answer.failure.may_try_next


def test_no_choices_but_usage_keeps_the_usage():
    answer = relay(stream=False)
    run(answer, body(completion(choices=[], usage=counts(10, 0))), headers=JSON)
    assert answer.failure.error.status == 502
    assert answer.raw_usage == counts(10, 0)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.CONNECTION_LOST, "upstream_failed_mid_response"),
        (Fault.PROTOCOL_ERROR, "upstream_failed_mid_response"),
        (Fault.IDLE_TIMEOUT, "upstream_timeout"),
        (Fault.TOTAL_TIMEOUT, "upstream_timeout"),
    ],
)
def test_a_fault_after_content_is_an_error_event(fault, code):
    answer = relay()
    out = run(answer, events(ROLE, chunk("Hello")), fault=fault)
    assert client_values(out)[-1]["error"]["code"] == code
    assert b"[DONE]" not in out
    assert answer.mid_stream_failure.fault is fault


def test_a_fault_after_the_finish_reason_changes_nothing():
    answer = relay()
    assert run(answer, HELLO, fault=Fault.CONNECTION_LOST) == run(relay(), HELLO + DONE)


def test_a_fault_after_a_whole_body_changes_nothing():
    answer = relay(stream=False)
    out = run(answer, body(completion()), headers=JSON, fault=Fault.CONNECTION_LOST)
    assert json.loads(out) == ours(completion())


def test_a_fault_in_half_a_body_is_a_failure():
    answer = relay(stream=False)
    run(answer, body(completion())[:40], headers=JSON, fault=Fault.IDLE_TIMEOUT)
    assert answer.failure.error.status == 504
    assert not answer.failure.error.should_retry


def test_a_fault_before_anything_was_sent_may_go_to_the_next_route():
    answer = relay()
    answer.receive_fault(Fault.CONNECT_FAILED, request_sent=False)
    assert answer.failure.may_try_next
    assert answer.failure.error.status == 503
    assert answer.failure.error.should_retry


def test_silence_after_the_request_is_not_tried_again():
    answer = relay()
    answer.receive_fault(Fault.FIRST_BYTE_TIMEOUT)
    assert answer.failure.error.status == 504
    assert answer.failure.may_have_billed
    assert not answer.failure.may_try_next


def test_a_folded_stream_that_breaks_is_a_failure_that_may_have_cost():
    answer = relay(stream=False)
    assert run(answer, events(ROLE, chunk("Hello")), fault=Fault.CONNECTION_LOST) == b""
    assert answer.failure.error.code == "upstream_failed_mid_response"
    assert answer.failure.may_have_billed
    assert answer.has_output


def test_we_can_end_a_stream_early_and_well_formed():
    answer = relay(usage=True)
    answer.receive_head(200, SSE)
    answer.receive(events(ROLE, chunk("Hello")))
    out = answer.finish_early() + answer.closing(counts(5, 1))
    finish, usage, end = client_values(out)
    assert finish == ours(chunk(finish="length"))
    assert usage["usage"] == counts(5, 1)
    assert end == "[DONE]"
    assert answer.finish_reason == "length"
    assert answer.receive(event(chunk("more"))) == b""


def test_we_can_end_a_folded_stream_early():
    answer = relay(stream=False)
    answer.receive_head(200, SSE)
    answer.receive(events(ROLE, chunk("Hel")))
    assert answer.finish_early() == b""
    value = json.loads(answer.closing())
    assert value["choices"][0]["message"]["content"] == "Hel"
    assert value["choices"][0]["finish_reason"] == "length"


def test_ending_early_does_not_touch_an_answer_that_has_ended():
    answer = relay()
    answer.receive_head(200, SSE)
    answer.receive(HELLO + DONE)
    assert answer.finish_early() == b""
    assert answer.finish_reason == "stop"


def test_a_folded_stream_is_bounded():
    answer = relay(stream=False, max_body_bytes=1000)
    answer.receive_head(200, SSE)
    for _ in range(20):
        answer.receive(event(chunk("A" * 50)))
    assert answer.failure.fault is Fault.TOO_LARGE


def test_a_body_is_bounded():
    answer = relay(stream=False, max_body_bytes=1000)
    run(answer, body(completion("A" * 1000)), headers=JSON)
    assert answer.failure.fault is Fault.TOO_LARGE
