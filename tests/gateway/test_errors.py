"""Every error a client can see: one shape, one table."""

import json
import re

import pytest

from gateway import errors

ROWS = [
    ("invalid_api_key", 401, "invalid_request_error", False, False),
    ("model_not_allowed", 403, "permission_error", False, False),
    ("ip_not_allowed", 403, "permission_error", False, False),
    ("scope_not_allowed", 403, "permission_error", False, False),
    ("tenant_suspended", 403, "permission_error", False, False),
    ("model_not_found", 404, "invalid_request_error", False, False),
    ("model_not_priced", 403, "permission_error", False, False),
    ("not_found", 404, "invalid_request_error", False, False),
    ("invalid_value", 400, "invalid_request_error", False, False),
    ("request_too_large", 413, "invalid_request_error", False, False),
    ("insufficient_balance", 402, "insufficient_quota", False, False),
    ("key_limit_reached", 402, "insufficient_quota", False, False),
    ("estimate_exceeds_balance", 402, "insufficient_quota", False, False),
    ("in_flight_budget_exhausted", 429, "rate_limit_error", True, True),
    ("rate_limit_exceeded", 429, "rate_limit_error", True, True),
    ("in_progress", 409, "idempotency_error", True, True),
    ("key_reused", 422, "idempotency_error", False, False),
    ("upstream_credential_rejected", 502, "upstream_error", False, False),
    ("upstream_unavailable", 503, "upstream_error", True, True),
    ("upstream_rate_limited", 429, "rate_limit_error", True, True),
    ("upstream_timeout", 504, "upstream_error", False, False),
    ("upstream_failed_mid_response", 502, "upstream_error", False, False),
    ("internal_error", 500, "server_error", False, False),
    ("service_unavailable", 503, "server_error", True, True),
]


def test_every_error_has_a_row():
    assert [row[0] for row in ROWS] == list(errors.TABLE)


@pytest.mark.parametrize(("code", "status", "type_", "should_retry", "has_wait"), ROWS)
def test_a_row_is_told_in_body_and_headers(code, status, type_, should_retry, has_wait):
    error = errors.TABLE[code]()
    told = json.loads(error.body())
    assert list(told) == ["error"]
    assert list(told["error"]) == ["message", "type", "param", "code"]
    assert (error.status, told["error"]["type"], told["error"]["code"]) == (status, type_, code)
    headers = dict(error.headers())
    assert headers["x-should-retry"] == ("true" if should_retry else "false")
    assert headers["cache-control"] == "no-store"
    assert headers["content-type"] == "application/json"
    assert ("retry-after" in headers) == has_wait
    assert json.loads(error.event().removeprefix(b"data: ").rstrip()) == told


@pytest.mark.parametrize("code", errors.TABLE)
def test_a_message_says_who_pays_and_shows_no_secret(code):
    message = errors.TABLE[code]().message
    assert re.search("charge", message)
    assert not re.search(r"https?://|sk_|postgres|redis", message, re.IGNORECASE)


def test_a_retry_is_advised_only_where_nothing_can_have_been_billed():
    assert errors.upstream_timeout(may_have_billed=False).should_retry
    assert not errors.upstream_timeout(may_have_billed=True).should_retry
    assert errors.internal_error(money_may_have_moved=False).should_retry
    assert not errors.internal_error(money_may_have_moved=True).should_retry


def test_params_name_the_field():
    assert errors.invalid_request("No.", param="n").as_dict()["error"]["param"] == "n"
    assert errors.model_not_found().param == "model"
    assert errors.too_large(5).param == "body"


def test_a_refusal_keeps_the_vendors_code():
    error = errors.refused_by_upstream(422, "Too long.", code="context_length_exceeded")
    assert (error.status, error.code) == (422, "context_length_exceeded")
    assert "Too long." in error.message


def test_waits_are_told_in_seconds():
    assert ("retry-after", "17") in errors.rate_limit_exceeded("tokens", 17).headers()
    assert "17 seconds" in errors.rate_limit_exceeded("tokens", 17).message


def test_an_error_shows_itself():
    assert repr(errors.model_not_found()).startswith("ApiError(404, 'model_not_found'")
