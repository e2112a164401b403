from billing.usage import Usage
from gateway.exchanges.selectors import exchange_view
from gateway.web.requests.timing import first_token_ms, steps_of
from tests.gateway.exchanges.made import a_stream, record

FAILED = {
    "n": 1,
    "vendor": "northgate",
    "vendor_model": "x",
    "status": 503,
    "started_ms": 4,
    "ended_ms": 17,
    "error": "upstream_unavailable",
}
ANSWERED = {
    "n": 2,
    "vendor": "tidewater",
    "vendor_model": "y",
    "status": 200,
    "started_ms": 17,
    "first_byte_ms": 60,
    "ended_ms": 120,
}


def steps(exchange) -> list[tuple[str, float, float, str]]:
    view = exchange_view(exchange.tenant.pk, exchange.id)
    return [(step.name, step.at_ms, step.took_ms, step.kind) for step in steps_of(view)]


def test_each_step_begins_where_the_one_before_ended(acme):
    exchange = acme.relayed().hold().settle(attempts=[FAILED, ANSWERED])
    assert steps(exchange) == [
        ("Authenticate, read, resolve, limits, hold", 0.0, 4.0, "own"),
        ("Attempt 1, northgate: 503", 4.0, 13.0, "failed"),
        ("Attempt 2, tidewater: first byte", 17.0, 43.0, "wait"),
        ("Attempt 2: stream", 60, 60.0, "stream"),
        ("Settle: hold → charge", 120.0, 5.0, "own"),
    ]


def test_a_worker_that_counts_has_a_step(acme):
    name, at_ms, took_ms, kind = steps(acme.relayed().hold().settle_at_estimate())[-1]
    assert (name, at_ms, took_ms, kind) == (
        "Worker counts the tokens, settles",
        120.0,
        5.0,
        "count",
    )


def test_a_refusal_is_one_step(acme):
    assert steps(acme.relayed().refuse()) == [("Refused with 402", 0.0, 1.0, "own")]


def test_what_is_open_has_no_end_yet(acme):
    assert steps(acme.relayed().hold()) == [
        ("Authenticate, read, resolve, limits, hold", 0.0, 0.0, "own")
    ]


def test_a_vendors_word_on_our_account_is_not_shown(acme):
    refused = {**FAILED, "status": 401}
    exchange = acme.relayed().hold()
    exchange.settle(Usage(), outcome="failed", source="none", status_code=502, attempts=[refused])
    assert [name for name, *_ in steps(exchange)][1:] == [
        "Attempt 1, northgate: refused our account",
        "Settle: hold → released",
    ]


def test_a_vendor_that_could_not_be_reached_says_why(acme):
    lost = {**FAILED, "status": None, "error": "connect time-out"}
    exchange = acme.relayed().hold().settle(attempts=[lost])
    assert steps(exchange)[1][0] == "Attempt 1, northgate: connect time-out, no byte"


def test_a_test_request_holds_nothing(acme):
    assert steps(acme.relayed_in_test(is_stream=False).hold().settle())[-2:] == [
        ("Attempt 1: answer", 40, 80.0, "stream"),
        ("Settle", 120.0, 5.0, "own"),
    ]


def test_legs_that_are_kept_know_tenths_of_a_millisecond(acme):
    exchange = acme.relayed().hold().settle()
    record(exchange.row, answer=a_stream("Hi"))
    view = exchange_view(exchange.tenant.pk, exchange.id)
    assert [(step.at_ms, step.took_ms) for step in steps_of(view)][1] == (4.3, 20.5 - 4.3)
    assert first_token_ms(view) == 20.5
