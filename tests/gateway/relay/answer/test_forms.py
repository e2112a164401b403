"""What the client gets is what it asked for, whatever the vendor sent."""

import json

from tests.gateway.relay.playbook import (
    DONE,
    HELLO,
    ID,
    JSON,
    MODEL,
    ROLE,
    SSE,
    STOP,
    body,
    chunk,
    client_values,
    completion,
    counts,
    event,
    ours,
    relay,
    run,
    text_of,
    usage_chunk,
)


def test_a_plain_stream_passes_with_our_names():
    answer = relay()
    out = run(answer, HELLO + event(usage_chunk(9, 2)) + DONE)
    assert client_values(out) == [
        ours(ROLE),
        ours(chunk("Hel")),
        ours(chunk("lo")),
        ours(STOP),
        "[DONE]",
    ]
    assert answer.complete
    assert answer.raw_usage == counts(9, 2)
    assert (answer.vendor_id, answer.vendor_model) == ("chatcmpl-v1", "vendor-m")
    assert answer.finish_reason == "stop"


def test_a_body_labelled_event_stream_is_a_body():
    answer = relay(stream=False)
    sent = completion(usage=counts(21, 7))
    out = run(answer, body(sent), headers=SSE)
    assert json.loads(out) == ours(sent)
    assert answer.head == "application/json"
    assert answer.raw_usage == counts(21, 7)


def test_a_stream_labelled_json_is_folded_for_a_client_that_wants_a_body():
    answer = relay(stream=False)
    out = run(answer, HELLO + event(usage_chunk(9, 2)) + DONE, headers=JSON)
    assert json.loads(out) == ours(completion(usage=counts(9, 2)))


def test_a_body_is_split_for_a_client_that_wants_a_stream():
    answer = relay(usage=True)
    out = run(answer, body(completion(usage=counts(21, 2))), headers=JSON)
    values = client_values(out)
    assert [value["choices"] for value in values[:-2]] == [
        [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
        [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    ]
    assert {(value["id"], value["model"], value["object"]) for value in values[:-1]} == {
        (ID, MODEL, "chat.completion.chunk")
    }
    assert values[-2]["choices"] == []
    assert values[-2]["usage"] == counts(21, 2)
    assert values[-1] == "[DONE]"


def test_a_body_under_event_stream_label_becomes_a_stream_without_usage_not_asked_for():
    answer = relay()
    out = run(answer, body(completion(usage=counts(0, 0))), headers=SSE)
    assert b"usage" not in out
    assert text_of(out) == "Hello"
    assert answer.raw_usage == counts(0, 0)
    assert answer.has_output


def test_blanks_before_a_body_are_only_a_sign_of_life():
    answer = relay(stream=False)
    out = run(answer, b" \n" * 25, b" ", body(completion()), headers=JSON)
    assert json.loads(out) == ours(completion())


def test_blanks_and_junk_are_no_answer():
    answer = relay(stream=False)
    assert run(answer, b" \n" * 25, b".", headers=JSON) == b""
    assert answer.failure.error.status == 502


def test_a_byte_order_mark_is_skipped():
    for stream in (True, False):
        out = run(relay(stream=stream), b"\xef", b"\xbb", b"\xbf" + HELLO + DONE)
        assert b"Hel" in out
    out = run(relay(stream=False), b"\xef\xbb\xbf" + body(completion()))
    assert json.loads(out) == ours(completion())


def test_an_end_mark_behind_a_body_is_cut_off():
    out = run(relay(stream=False), body(completion()) + b"\n\ndata: [DONE]\n\n")
    assert json.loads(out) == ours(completion())


def test_a_chunk_as_the_only_body_is_folded():
    out = run(relay(stream=False), body(chunk("Hello", finish="stop")), headers=JSON)
    assert json.loads(out)["choices"] == completion()["choices"]


def test_a_completion_as_the_only_event_is_split():
    answer = relay()
    out = run(answer, event(completion(usage=counts(3, 4))) + DONE)
    assert text_of(out) == "Hello"
    assert client_values(out)[-2]["choices"][0]["finish_reason"] == "stop"
    assert answer.raw_usage == counts(3, 4)


def test_a_body_keeps_its_bytes_but_for_the_names():
    text = (
        b'{ "id": "chatcmpl-v1", "model":"vendor-m", "x_extra":{"k":1.50},'
        b'"choices":[{"index":0,"message":{"role":"assistant","content":"a\\u00e9\\u0000",'
        b'"reasoning_content":"hm"},"finish_reason":"stop"}],"n":123456789012345678901234 }'
    )
    out = run(relay(stream=False), text, headers=JSON)
    assert out == text.replace(b'"id": "chatcmpl-v1"', b'"id":"chatcmpl-ours"').replace(
        b"vendor-m", b"alias-m"
    )


def test_usage_with_its_cost_replaces_the_vendors_in_a_body():
    answer = relay(stream=False)
    answer.receive_head(200, JSON)
    answer.receive(body(completion(usage=counts(1, 2))))
    answer.receive_end()
    priced = {**counts(1, 2), "cost": "0.1"}
    assert json.loads(answer.closing(priced)) == ours(completion(usage=priced))


def test_closing_is_empty_until_the_end():
    answer = relay()
    answer.receive_head(200, SSE)
    answer.receive(HELLO)
    assert answer.closing() == b""
