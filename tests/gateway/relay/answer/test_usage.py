"""Where usage comes in a stream, and what of it the client gets."""

from tests.gateway.relay.playbook import (
    DONE,
    HELLO,
    ROLE,
    SSE,
    STOP,
    chunk,
    client_values,
    counts,
    delta,
    event,
    events,
    ours,
    relay,
    run,
    text_of,
    usage_chunk,
)


def test_a_usage_chunk_nobody_asked_for_is_kept_from_the_client():
    answer = relay()
    out = run(answer, HELLO + event(usage_chunk(22, 3)) + DONE)
    assert all(value == "[DONE]" or value["choices"] for value in client_values(out))
    assert answer.raw_usage == counts(22, 3)


def test_null_usage_on_every_chunk_is_kept_from_the_client():
    answer = relay()
    plain = [ROLE, chunk("Hel"), chunk("lo"), STOP]
    sent = events(*({**value, "usage": None} for value in plain), usage_chunk(25, 4))
    assert run(answer, sent + DONE) == run(relay(), events(*plain) + DONE)
    assert answer.raw_usage == counts(25, 4)


def test_usage_comes_once_and_last_to_a_client_that_asked():
    answer = relay(usage=True)
    sent = [ROLE, chunk("Hello"), {**STOP, "usage": counts(23, 235)}, usage_chunk(23, 235)]
    out = run(answer, events(*sent) + DONE)
    assert client_values(out) == [
        ours(ROLE),
        ours(chunk("Hello")),
        ours(STOP),
        ours(usage_chunk(23, 235)),
        "[DONE]",
    ]


def test_usage_beside_choices_is_usage():
    answer = relay(usage=True)
    details = {**counts(65, 251), "prompt_tokens_details": {"cached_tokens": 64}}
    out = run(answer, HELLO + event({**delta({}), "usage": details}) + DONE)
    assert [v["usage"] for v in client_values(out) if "usage" in v] == [details]
    assert answer.raw_usage == details


def test_the_last_of_many_usages_wins():
    answer = relay()
    sent = [
        {**chunk("A"), "usage": counts(40, 10)},
        {**chunk(" B"), "usage": counts(40, 50)},
        {**STOP, "usage": counts(40, 100)},
    ]
    out = run(answer, events(*sent) + DONE)
    assert answer.raw_usage == counts(40, 100)
    assert text_of(out) == "A B"
    assert b"usage" not in out


def test_an_interim_usage_with_a_missing_field_keeps_the_text():
    answer = relay()
    first = {**chunk("Hel"), "usage": {"prompt_tokens": 11, "total_tokens": 11}}
    out = run(answer, events(first, chunk("lo"), STOP, usage_chunk(11, 6)) + DONE)
    assert text_of(out) == "Hello"
    assert answer.raw_usage == counts(11, 6)


def test_usage_inside_a_choice_is_found():
    answer = relay()
    finish = delta({}, finish_reason="stop", usage=counts(33, 9))
    out = run(answer, events(ROLE, chunk("Hello"), finish) + DONE)
    assert answer.raw_usage == counts(33, 9)
    assert b"usage" not in out


def test_usage_after_the_finish_reason_and_even_after_the_end_mark_is_read():
    answer = relay()
    answer.receive_head(200, SSE)
    answer.receive(HELLO)
    assert not answer.ended
    answer.receive(DONE)
    assert answer.ended
    assert answer.receive(events(chunk("late"), usage_chunk(39, 4))) == b""
    assert answer.raw_usage == counts(39, 4)


def test_a_client_that_asked_gets_an_estimate_from_the_driver():
    answer = relay(usage=True)
    answer.receive_head(200, SSE)
    answer.receive(HELLO + DONE)
    *_, usage, end = client_values(HELLO + answer.closing(counts(5, 2)))
    assert usage == {**ours(usage_chunk(5, 2))}
    assert end == "[DONE]"


def test_without_usage_a_client_that_asked_still_gets_its_end():
    assert run(relay(usage=True), HELLO + DONE).endswith(event(ours(STOP)) + DONE)


def test_other_fields_of_the_usage_chunk_are_kept():
    sent = {**usage_chunk(1, 1), "x_vendor": {"a": 1}}
    *_, usage, _end = client_values(run(relay(usage=True), HELLO + event(sent) + DONE))
    assert usage == ours(sent)
