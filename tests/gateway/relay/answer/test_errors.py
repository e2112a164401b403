"""What a vendor says instead of an answer, and who is told what."""

import pytest

from gateway.relay.body import MAX_ERROR_BODY_BYTES
from gateway.relay.failures import Fault
from tests.gateway.relay.playbook import (
    DONE,
    JSON,
    ROLE,
    STOP,
    body,
    chunk,
    client_values,
    completion,
    event,
    events,
    ours,
    relay,
    run,
)


def test_an_error_as_the_first_event_is_an_http_error():
    error = {"error": {"message": "context too long", "type": "BadRequestError", "code": 400}}
    answer = relay()
    assert run(answer, event(error) + DONE) == b""
    assert answer.failure.error.status == 400
    assert answer.failure.error.type == "invalid_request_error"
    assert "context too long" in answer.failure.error.message
    assert not answer.failure.error.should_retry
    assert not answer.failure.may_try_next


def test_an_error_after_pings_is_an_http_error():
    sent = [{"type": "ping"}] * 2
    sent.append({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    answer = relay()
    assert run(answer, events(*sent)) == b""
    assert answer.failure.error.status == 503
    assert answer.failure.may_try_next


@pytest.mark.parametrize(
    "sent",
    [
        b'event: error\ndata: {"message":"x"}\n\n',
        b'data: {"object":"error","message":"x"}\n\n',
        b'{"error":"x"}\n',
        b'data: {"error":{"message":"x"},"choices":[{"index":0,"delta":{}}]}\n\n',
        b'data: {"error":[{"message":"x"}]}\n\n',
        b'data: {"detail":"x"}\n\n',
        b'data: {"success":false,"errors":[{"code":7,"message":"x"}]}\n\n',
        b'data: {"code":500,"msg":"x"}\n\n',
        b'data: {"error_code":17,"error_msg":"x"}\n\n',
        b'data: {"base_resp":{"status_code":1004,"status_msg":"x"}}\n\n',
        b'data: {"status":"error","message":"x"}\n\n',
        b'data: {"choices":[{"index":0,"error":{"message":"x"},"finish_reason":"error"}]}\n\n',
        b"event: error\ndata: x\n\n",
    ],
)
def test_errors_are_known_in_every_dialect(sent):
    answer = relay()
    out = run(answer, events(ROLE, chunk("Hi")) + sent + DONE)
    assert client_values(out)[-1]["error"]["code"] == "upstream_failed_mid_response"
    assert answer.mid_stream_failure.vendor_message == "x"


def test_an_error_after_content_invents_no_finish():
    error = {"error": {"message": "capacity at acme", "code": 503}}
    answer = relay()
    out = run(answer, events(ROLE, chunk("Part one."), error) + DONE)
    assert b'finish_reason":"stop' not in out
    assert b"acme" not in out
    assert b"[DONE]" not in out
    assert "error" in client_values(out)[-1]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"error": "Unexpected endpoint or method. (POST /chat/completions)"}, 502),
        ({"id": "gen-1", "error": {"message": "overloaded", "code": 429}}, 429),
        ({"error": {"message": "x", "code": "503"}}, 503),
        ({"error": {"message": "x", "code": 200}}, 502),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_an_error_under_200_has_the_status_it_names(sent, status, stream):
    answer = relay(stream=stream)
    assert run(answer, body(sent), headers=JSON) == b""
    assert answer.failure.error.status == status


def test_an_html_error_page_never_reaches_the_client():
    answer = relay()
    page = b"<html><h1>502 Bad Gateway</h1></html>"
    assert run(answer, page, status=502, headers=[]) == b""
    assert answer.failure.error.status == 502
    assert b"<html" not in answer.failure.error.body()
    assert "<html>" in answer.failure.vendor_message
    assert answer.failure.may_try_next


def test_a_429_keeps_its_wait():
    answer = relay()
    sent = body({"error": {"message": "Rate limit reached", "type": "rate_limit_error"}})
    run(answer, sent, status=429, headers=[*JSON, (b"retry-after", b"30")])
    assert answer.failure.error.status == 429
    assert ("retry-after", "30") in answer.failure.error.headers()
    assert ("x-should-retry", "true") in answer.failure.error.headers()


def test_a_refused_option_is_told_to_the_driver():
    answer = relay()
    said = "Unrecognized request argument: stream_options"
    run(answer, body({"error": {"message": said}}), status=400, headers=JSON)
    assert answer.failure.rejects_stream_options


def test_an_error_written_as_an_event_under_an_error_status_is_read():
    answer = relay()
    run(answer, event({"error": {"message": "too long"}}), status=400)
    assert answer.failure.vendor_message == "too long"


def test_an_error_in_a_list_is_read():
    answer = relay()
    run(answer, body([{"error": {"message": "too long"}}]), status=400, headers=JSON)
    assert answer.failure.vendor_message == "too long"


def test_a_redirect_is_a_failure():
    answer = relay()
    assert run(answer, b"", status=307, headers=[(b"location", b"http://x/")]) == b""
    assert answer.failure.error.status == 502


def test_a_long_error_body_is_cut():
    answer = relay()
    run(answer, b"x" * 50_000, b"y" * 50_000, status=500, headers=[])
    assert len(answer.failure.vendor_message) <= MAX_ERROR_BODY_BYTES


def test_a_fault_in_an_error_body_still_tells_the_status():
    answer = relay()
    run(answer, b'{"error":', status=400, headers=JSON, fault=Fault.CONNECTION_LOST)
    assert answer.failure.vendor_status == 400


def test_a_finish_reason_may_be_all_that_tells_of_an_error():
    failing = chunk("", finish="error")
    answer = relay()
    out = run(answer, events(ROLE, chunk("Hi"), failing) + DONE)
    assert client_values(out)[-1]["error"]["code"] == "upstream_failed_mid_response"
    answer = relay(stream=False)
    run(answer, body(completion(choices=[{"message": {}, "finish_reason": "error"}])), headers=JSON)
    assert answer.failure.error.status == 502


@pytest.mark.parametrize(
    "ping",
    [
        {"type": "ping"},
        {"error": None, "choices": None},
        {"status": "ok", "message": "processing"},
        {"code": 0, "msg": "success"},
        {"base_resp": {"status_code": 0}},
        {"success": True},
        {"detail": None},
    ],
)
def test_what_is_no_error_is_a_ping(ping):
    out = run(relay(), events(ROLE, ping, chunk("Hi"), STOP) + DONE)
    assert client_values(out) == [ours(ROLE), ours(chunk("Hi")), ours(STOP), "[DONE]"]
