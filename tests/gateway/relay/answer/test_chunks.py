"""Chunks that are unusual, and what passes untouched."""

import json

import pytest

from tests.gateway.relay.playbook import (
    DONE,
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


def test_a_missing_or_null_delta_is_no_trouble():
    finish = [
        delta(None, finish_reason="stop"),
        chunk(choices=[{"index": 0, "finish_reason": "stop"}]),
    ]
    out = run(relay(), events(ROLE, chunk("Hello"), *finish) + DONE)
    assert client_values(out)[2:4] == [ours(STOP), ours(STOP)]


def test_a_preamble_waits_for_the_first_choice():
    preamble = {
        "choices": [],
        "created": 0,
        "id": "",
        "model": "",
        "object": "",
        "prompt_filter_results": [{"prompt_index": 0}],
    }
    bare = chunk(choices=[{"index": 0, "finish_reason": None, "content_filter_results": {}}])
    answer = relay()
    answer.receive_head(200, SSE)
    assert answer.receive(event(preamble)) == b""
    out = answer.receive(events(ROLE, chunk("Hello"), bare, STOP) + DONE)
    first, *rest = client_values(out)
    assert first == {**ours(preamble), "object": "chat.completion.chunk"}
    bare["choices"][0]["delta"] = {}
    assert rest == [ours(ROLE), ours(chunk("Hello")), ours(bare), ours(STOP)]
    assert (answer.vendor_id, answer.vendor_model) == ("chatcmpl-v1", "vendor-m")


def test_an_empty_finish_reason_is_null():
    answer = relay()
    out = run(answer, events(chunk("Hel", finish=""), chunk("lo", finish=""), STOP) + DONE)
    values = client_values(out)
    reasons = [value["choices"][0]["finish_reason"] for value in values[:-1]]
    assert reasons == [None, None, "stop"]
    assert text_of(out) == "Hello"


def test_text_and_finish_reason_in_one_chunk_both_count():
    answer = relay()
    out = run(answer, events(ROLE, chunk("Hello"), chunk(" world", finish="length")) + DONE)
    assert text_of(out) == "Hello world"
    assert answer.finish_reason == "length"


def test_choices_may_interleave():
    def piece(index, text=None, finish=None):
        fields = {} if text is None else {"content": text}
        return chunk(choices=[{"index": index, "delta": fields, "finish_reason": finish}])

    sent = [
        piece(0, "A1"),
        piece(1, "B1"),
        piece(0, finish="stop"),
        piece(1, "B2"),
        piece(1, finish="stop"),
        usage_chunk(24, 58),
    ]
    answer = relay(n=2)
    out = run(answer, events(*sent))
    assert (text_of(out, 0), text_of(out, 1)) == ("A1", "B1B2")
    assert answer.complete
    folded = json.loads(run(relay(stream=False, n=2), events(*sent) + DONE))
    assert [c["message"]["content"] for c in folded["choices"]] == ["A1", "B1B2"]
    assert folded["usage"] == counts(24, 58)


def test_a_stream_that_lost_one_of_its_choices_is_cut():
    one = chunk(choices=[{"index": 1, "delta": {"content": "B"}, "finish_reason": None}])
    answer = relay(n=2)
    run(answer, events(chunk("A"), one, STOP))
    assert not answer.complete


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"refusal": "no"},
        {"audio": {"data": "AAAA"}},
        {"content": "x"},
    ],
)
def test_everything_a_model_produces_is_output(fields):
    answer = relay()
    run(answer, events(ROLE, delta(fields), STOP) + DONE)
    assert answer.has_output


def test_a_role_and_an_empty_text_are_no_output():
    answer = relay()
    run(answer, events(ROLE, STOP) + DONE)
    assert not answer.has_output
    assert answer.complete


def test_another_model_in_mid_stream_does_not_show():
    other = {**chunk("lo"), "model": "vendor-m-2"}
    out = run(relay(), events(ROLE, chunk("Hel"), chunk("l"), other, STOP) + DONE)
    assert b"vendor" not in out
    assert text_of(out) == "Hello"[:3] + "llo"


def test_the_models_name_in_the_text_is_text():
    out = run(relay(), events(ROLE, chunk("I am"), chunk(' "model":"vendor-m"'), STOP) + DONE)
    assert text_of(out) == 'I am "model":"vendor-m"'


def test_every_choice_gets_an_index_and_a_delta():
    sent = [
        chunk(choices=[None, {"delta": {"content": "Hel"}}]),
        chunk(choices=[{"index": "0", "text": "lo"}]),
        STOP,
    ]
    values = client_values(run(relay(), events(*sent) + DONE))
    assert [value["choices"] for value in values[:2]] == [
        [{"index": 0, "delta": {"content": "Hel"}}],
        [{"index": 0, "text": "lo", "delta": {"content": "lo"}}],
    ]


def test_texts_of_the_older_form_fold_into_a_message():
    sent = [chunk(choices=[{"index": 0, "text": text}]) for text in ("Hel", "lo")]
    out = run(relay(stream=False), events(*sent, STOP) + DONE)
    assert json.loads(out)["choices"][0]["message"]["content"] == "Hello"
