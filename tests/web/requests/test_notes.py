from billing.messages import ESTIMATED, INTERRUPTED, status_message
from gateway import errors
from gateway.exchanges.selectors import exchange_view
from gateway.web.requests.notes import PageNote, note_of


def note(exchange) -> PageNote | None:
    return note_of(exchange_view(exchange.tenant.pk, exchange.id))


def failed(exchange, error, **more):
    message = {
        "vendor_status": 500,
        "vendor_message": None,
        "user_status": error.status,
        "user_message": error.message,
    }
    return exchange.hold().settle(
        outcome="failed", source="none", status_code=error.status, message=message, **more
    )


def test_an_ordinary_request_needs_no_note(acme):
    assert note(acme.relayed().hold().settle()) is None


def test_an_estimate_says_its_message_word_for_word(acme):
    said = note(acme.relayed().hold().settle_at_estimate())
    assert (said.tone, said.cause) == (
        "info",
        "vendor returned no token usage; billed at estimate",
    )
    assert "without a usage block" in said.words
    assert said.facts == ("user_status 200", "vendor_status none", "vendor_message none")
    assert said.is_estimate


def test_an_estimate_in_place_of_zeros_says_so(acme):
    exchange = acme.relayed().hold()
    exchange.settle(
        source="vendor", flags=("prompt_estimated",), message=status_message(ESTIMATED, 200)
    )
    assert "took no tokens" in note(exchange).words


def test_an_estimate_of_a_broken_answer_says_so(acme):
    exchange = acme.relayed().hold()
    exchange.settle(source="estimate", outcome="partial", message=status_message(ESTIMATED, 200))
    said = note(exchange)
    assert (said.cause, said.tone) == (ESTIMATED, "info")
    assert "broke off before its end" in said.words


def test_an_interrupted_answer_has_its_own_words(acme):
    exchange = acme.relayed().hold()
    exchange.settle(
        source="estimate", outcome="gateway_died", message=status_message(INTERRUPTED, 200)
    )
    said = note(exchange)
    assert said.cause == INTERRUPTED
    assert "may be incomplete" in said.words


def test_an_error_is_its_own_words_parted_after_the_cause(acme):
    error = errors.upstream_unavailable()
    said = note(failed(acme.relayed(), error))
    assert (said.tone, f"{said.cause} {said.words}") == ("bad", error.message)
    assert said.cause == "The model's provider is not available at the moment."
    assert said.facts[1] == "vendor_status 500"


def test_a_refusal_is_a_warning(acme):
    said = note(acme.relayed().refuse())
    assert (said.tone, said.cause) == ("warn", "Your organisation's balance is used up.")
    assert said.words == "You were not charged. Top up under Billing, then try again."


def test_states_without_a_message_say_who_pays(acme):
    gone = acme.relayed().hold().settle(outcome="client_gone", status_code=499)
    assert "You pay for the prompt" in note(gone).words
    nothing = acme.relayed().hold().settle(outcome="client_gone", source="none", status_code=499)
    assert note(nothing).words == "Nothing was charged; what was held is free again."
    partial = note(acme.relayed().hold().settle(outcome="partial"))
    assert (partial.tone, partial.cause) == ("bad", "The answer broke off before its end")


def test_what_is_not_settled_says_what_to_wait_for(acme):
    assert note(acme.relayed().hold()).cause == "This request is still running"
    waiting = note(acme.relayed().hold().wait_for_estimate())
    assert (waiting.tone, waiting.is_estimate) == ("info", False)
    assert "our workers count it now" in waiting.cause
