from datetime import timedelta

import pytest

from billing.usage import COMPLETION_ESTIMATED, Usage
from gateway.exchanges.selectors import exchange_row
from gateway.web.requests.rows import RequestLine


def line_of(exchange) -> RequestLine:
    return RequestLine(exchange_row(exchange.tenant.pk, exchange.id))


@pytest.mark.parametrize(
    ("settled", "state", "words", "first_ms"),
    [
        ({}, "settled", "", 40),
        ({"outcome": "failed", "source": "none", "status_code": 503}, "failed", "Failed 503", None),
        ({"outcome": "partial"}, "failed", "Broke off", 40),
        ({"outcome": "client_gone", "status_code": 499}, "client_left", "", 40),
    ],
)
def test_states_are_said_in_words(acme, settled, state, words, first_ms):
    line = line_of(acme.relayed().hold().settle(**settled))
    assert (line.state, line.state_words, line.first_token_ms) == (state, words, first_ms)


def test_a_refusal_has_its_status_and_no_usage(acme):
    line = line_of(acme.relayed().refuse(429))
    assert (line.state, line.state_words) == ("refused", "Refused 429")
    assert (line.usage, line.charge_nanos, line.is_held) == (None, 0, False)


def test_what_is_open_streams_or_not_and_is_held(acme):
    streaming = line_of(acme.relayed().hold())
    assert (streaming.state, streaming.mode, streaming.seconds) == ("streaming", "stream", None)
    assert (streaming.is_held, streaming.charge_nanos, streaming.usage) == (True, None, None)
    assert line_of(acme.relayed(is_stream=False).hold()).state == "open"


def test_only_the_side_that_was_counted_is_marked_as_estimated(acme):
    both = line_of(acme.relayed().hold().settle_at_estimate())
    assert (both.is_prompt_estimated, both.is_completion_estimated) == (True, True)
    one = line_of(acme.relayed().hold().settle(flags=(COMPLETION_ESTIMATED,)))
    assert (one.is_prompt_estimated, one.is_completion_estimated) == (False, True)


def test_the_short_id_is_the_end_of_the_id(acme):
    exchange = acme.relayed(ago=timedelta(minutes=1)).hold().settle(Usage())
    assert line_of(exchange).short_id == f"req_…{exchange.public_id[-8:]}"
