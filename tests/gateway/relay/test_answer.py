"""Playbooks of the answer relay: what a vendor sends, what the client gets, what is known after."""

import gzip
import itertools
import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.relay.body import MAX_ERROR_BODY_BYTES
from gateway.relay.failures import Fault
from tests.gateway.relay.playbook import (
    DONE,
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
    delta,
    event,
    events,
    ours,
    relay,
    run,
    text_of,
    told,
    usage_chunk,
)

HELLO = events(ROLE, chunk("Hel"), chunk("lo"), STOP)


class TestForms:
    def test_a_plain_stream_passes_with_our_names(self):
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

    def test_a_body_labelled_event_stream_is_a_body(self):
        answer = relay(stream=False)
        sent = completion(usage=counts(21, 7))
        out = run(answer, body(sent), headers=SSE)
        assert json.loads(out) == ours(sent)
        assert answer.head == "application/json"
        assert answer.raw_usage == counts(21, 7)

    def test_a_stream_labelled_json_is_folded_for_a_client_that_wants_a_body(self):
        answer = relay(stream=False)
        out = run(answer, HELLO + event(usage_chunk(9, 2)) + DONE, headers=JSON)
        assert json.loads(out) == ours(completion(usage=counts(9, 2)))

    def test_a_body_is_split_for_a_client_that_wants_a_stream(self):
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

    def test_a_body_under_event_stream_label_becomes_a_stream_without_usage_not_asked_for(self):
        answer = relay()
        out = run(answer, body(completion(usage=counts(0, 0))), headers=SSE)
        assert b"usage" not in out
        assert text_of(out) == "Hello"
        assert answer.raw_usage == counts(0, 0)
        assert answer.has_output

    def test_blanks_before_a_body_are_only_a_sign_of_life(self):
        answer = relay(stream=False)
        out = run(answer, b" \n" * 25, b" ", body(completion()), headers=JSON)
        assert json.loads(out) == ours(completion())

    def test_blanks_and_junk_are_no_answer(self):
        answer = relay(stream=False)
        assert run(answer, b" \n" * 25, b".", headers=JSON) == b""
        assert answer.failure.error.status == 502

    def test_a_byte_order_mark_is_skipped(self):
        for stream in (True, False):
            out = run(relay(stream=stream), b"\xef", b"\xbb", b"\xbf" + HELLO + DONE)
            assert b"Hel" in out
        out = run(relay(stream=False), b"\xef\xbb\xbf" + body(completion()))
        assert json.loads(out) == ours(completion())

    def test_an_end_mark_behind_a_body_is_cut_off(self):
        out = run(relay(stream=False), body(completion()) + b"\n\ndata: [DONE]\n\n")
        assert json.loads(out) == ours(completion())

    def test_a_chunk_as_the_only_body_is_folded(self):
        out = run(relay(stream=False), body(chunk("Hello", finish="stop")), headers=JSON)
        assert json.loads(out)["choices"] == completion()["choices"]

    def test_a_completion_as_the_only_event_is_split(self):
        answer = relay()
        out = run(answer, event(completion(usage=counts(3, 4))) + DONE)
        assert text_of(out) == "Hello"
        assert client_values(out)[-2]["choices"][0]["finish_reason"] == "stop"
        assert answer.raw_usage == counts(3, 4)

    def test_a_body_keeps_its_bytes_but_for_the_names(self):
        text = (
            b'{ "id": "chatcmpl-v1", "model":"vendor-m", "x_extra":{"k":1.50},'
            b'"choices":[{"index":0,"message":{"role":"assistant","content":"a\\u00e9\\u0000",'
            b'"reasoning_content":"hm"},"finish_reason":"stop"}],"n":123456789012345678901234 }'
        )
        out = run(relay(stream=False), text, headers=JSON)
        assert out == text.replace(b'"id": "chatcmpl-v1"', b'"id":"chatcmpl-ours"').replace(
            b"vendor-m", b"alias-m"
        )

    def test_usage_with_its_cost_replaces_the_vendors_in_a_body(self):
        answer = relay(stream=False)
        answer.receive_head(200, JSON)
        answer.receive(body(completion(usage=counts(1, 2))))
        answer.receive_end()
        priced = {**counts(1, 2), "cost": "0.1"}
        assert json.loads(answer.closing(priced)) == ours(completion(usage=priced))

    def test_closing_is_empty_until_the_end(self):
        answer = relay()
        answer.receive_head(200, SSE)
        answer.receive(HELLO)
        assert answer.closing() == b""


class TestSpelling:
    @pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\n"])
    @pytest.mark.parametrize("lead", [b"data: ", b"data:", b"id: 7\ndata: ", b"event: x\ndata:"])
    def test_every_spelling_of_an_event_reads_the_same(self, end, lead):
        answer = relay()
        sent = events(ROLE, chunk("Hel"), chunk("lo"), STOP, usage_chunk(23, 4), end=end, lead=lead)
        out = run(answer, sent + b"data:[DONE]" + end)
        assert out == run(relay(), HELLO + DONE)
        assert answer.raw_usage == counts(23, 4)

    def test_comments_are_dropped(self):
        comment = b": OPENROUTER PROCESSING\n\n"
        sent = comment + comment.join(event(v) for v in (ROLE, chunk("Hello"), STOP)) + DONE
        answer = relay()
        answer.receive_head(200, SSE)
        assert answer.receive(b": keepalive 205/2048\n\n") == b""
        assert not answer.sent_any
        assert text_of(answer.receive(sent)) == "Hello"

    def test_a_line_end_cut_in_two_is_one_line_end(self):
        first, second = event(chunk("Hello"), end=b"").split(b'"choices"')
        out = run(
            relay(),
            event(ROLE) + first + b"\r",
            b'\ndata: "choices"' + second + b"\r\n\r\n",
            event(STOP, end=b"\n\r\n") + DONE,
        )
        assert text_of(out) == "Hello"

    def test_a_character_cut_in_two_arrives_whole(self):
        sent = event(ROLE) + event(chunk("你好，世界")) + event(STOP) + DONE
        cut = sent.index("你".encode()) + 1
        out = run(relay(), sent[:cut], sent[cut:])
        assert text_of(out) == "你好，世界"
        assert "�".encode() not in out

    def test_the_last_event_needs_no_blank_line_if_it_is_whole(self):
        answer = relay()
        run(answer, HELLO + event(usage_chunk(18, 6), end=b""))
        assert answer.complete
        assert answer.raw_usage == counts(18, 6)

    def test_a_null_event_is_dropped(self):
        out = run(relay(), event(ROLE) + b"data: null\n\n" + events(chunk("Hi"), STOP) + DONE)
        assert client_values(out) == [ours(ROLE), ours(chunk("Hi")), ours(STOP), "[DONE]"]

    def test_an_event_that_is_no_json_is_left_out_and_counted(self):
        answer = relay()
        out = run(answer, event(ROLE) + b"data: {oops\n\n" + events(chunk("Hi"), STOP) + DONE)
        assert text_of(out) == "Hi"
        assert answer.skipped_events == 1

    def test_an_event_above_a_megabyte_passes(self):
        out = run(relay(), events(ROLE, chunk("A" * 1_200_000), STOP) + DONE)
        assert text_of(out) == "A" * 1_200_000

    @pytest.mark.parametrize("step", [1, 7, 5000])
    def test_an_event_above_the_limit_ends_the_stream_with_an_error(self, step):
        sent = events(ROLE, chunk("Hi"), chunk("A" * 1100), chunk("more")) + DONE
        answer = relay(max_event_bytes=1000)
        out = run(answer, *(sent[at : at + step] for at in range(0, len(sent), step)))
        values = client_values(out)
        assert values[:2] == [ours(ROLE), ours(chunk("Hi"))]
        assert values[2]["error"]["code"] == "upstream_failed_mid_response"
        assert len(values) == 3
        assert answer.mid_stream_failure.fault is Fault.TOO_LARGE

    def test_endless_data_lines_are_bounded(self):
        answer = relay(max_event_bytes=1000)
        answer.receive_head(200, SSE)
        for _ in range(200):
            answer.receive(b"data:\n")
        assert answer.failure.fault is Fault.TOO_LARGE

    def test_not_a_number_becomes_null(self):
        text = event(chunk("Hi")).replace(b'"finish', b'"logprob":-Infinity,"x":[NaN,1],"finish')
        (value, *_) = client_values(run(relay(), text + event(STOP) + DONE))
        assert value["choices"][0]["logprob"] is None
        assert value["choices"][0]["x"] == [None, 1]
        sent = body(completion(usage=counts(10, 5))).replace(b'"index":0', b'"index":0,"p":NaN')
        answer = relay(stream=False)
        assert json.loads(run(answer, sent, headers=JSON))["choices"][0]["p"] is None
        assert answer.raw_usage == counts(10, 5)

    def test_nul_and_half_surrogates_pass(self):
        sent = events(ROLE, chunk("Hi")) + event(chunk("x")).replace(b'"x"', rb'"\u0000\ud83d"')
        out = run(relay(), sent + event(STOP) + DONE)
        assert text_of(out) == "Hi\x00\ud83d"

    @pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw"])
    def test_compression_nobody_asked_for_is_undone(self, encoding):
        plain = HELLO + event(usage_chunk(36, 2)) + DONE
        raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        packed = {
            "gzip": gzip.compress(plain),
            "deflate": zlib.compress(plain),
            "raw": raw.compress(plain) + raw.flush(),
        }[encoding]
        name = b"gzip" if encoding == "gzip" else b"deflate"
        answer = relay()
        reads = [packed[at : at + 1] for at in range(len(packed))]
        out = run(answer, *reads, headers=[*SSE, (b"Content-Encoding", name)])
        assert out == run(relay(), plain)
        assert answer.raw_usage == counts(36, 2)

    def test_the_first_byte_tells_gzip_whatever_the_label(self):
        plain = HELLO + DONE
        assert run(relay(), gzip.compress(plain)) == run(relay(), plain)
        assert run(relay(), plain, headers=[(b"content-encoding", b"gzip")]) == run(relay(), plain)
        answer = relay()
        said = gzip.compress(body({"error": {"message": "too long"}}))
        run(answer, said, status=400, headers=[*JSON, (b"content-encoding", b"gzip")])
        assert answer.failure.vendor_message == "too long"

    def test_a_compression_bomb_is_a_failure(self):
        packed = gzip.compress(b" " * 30_000_000)
        answer = relay()
        run(answer, packed, headers=[*SSE, (b"content-encoding", b"gzip")])
        assert answer.failure.error.status == 502

    def test_an_encoding_that_is_not_spoken_is_a_failure(self):
        answer = relay()
        assert run(answer, HELLO, headers=[*SSE, (b"content-encoding", b"br")]) == b""
        assert answer.failure.error.status == 502


class TestUsageInStreams:
    def test_a_usage_chunk_nobody_asked_for_is_kept_from_the_client(self):
        answer = relay()
        out = run(answer, HELLO + event(usage_chunk(22, 3)) + DONE)
        assert all(value == "[DONE]" or value["choices"] for value in client_values(out))
        assert answer.raw_usage == counts(22, 3)

    def test_null_usage_on_every_chunk_is_kept_from_the_client(self):
        answer = relay()
        plain = [ROLE, chunk("Hel"), chunk("lo"), STOP]
        sent = events(*({**value, "usage": None} for value in plain), usage_chunk(25, 4))
        assert run(answer, sent + DONE) == run(relay(), events(*plain) + DONE)
        assert answer.raw_usage == counts(25, 4)

    def test_usage_comes_once_and_last_to_a_client_that_asked(self):
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

    def test_usage_beside_choices_is_usage(self):
        answer = relay(usage=True)
        details = {**counts(65, 251), "prompt_tokens_details": {"cached_tokens": 64}}
        out = run(answer, HELLO + event({**delta({}), "usage": details}) + DONE)
        assert [v["usage"] for v in client_values(out) if "usage" in v] == [details]
        assert answer.raw_usage == details

    def test_the_last_of_many_usages_wins(self):
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

    def test_an_interim_usage_with_a_missing_field_keeps_the_text(self):
        answer = relay()
        first = {**chunk("Hel"), "usage": {"prompt_tokens": 11, "total_tokens": 11}}
        out = run(answer, events(first, chunk("lo"), STOP, usage_chunk(11, 6)) + DONE)
        assert text_of(out) == "Hello"
        assert answer.raw_usage == counts(11, 6)

    def test_usage_inside_a_choice_is_found(self):
        answer = relay()
        finish = delta({}, finish_reason="stop", usage=counts(33, 9))
        out = run(answer, events(ROLE, chunk("Hello"), finish) + DONE)
        assert answer.raw_usage == counts(33, 9)
        assert b"usage" not in out

    def test_usage_after_the_finish_reason_and_even_after_the_end_mark_is_read(self):
        answer = relay()
        answer.receive_head(200, SSE)
        answer.receive(HELLO)
        assert not answer.ended
        answer.receive(DONE)
        assert answer.ended
        assert answer.receive(events(chunk("late"), usage_chunk(39, 4))) == b""
        assert answer.raw_usage == counts(39, 4)

    def test_a_client_that_asked_gets_an_estimate_from_the_driver(self):
        answer = relay(usage=True)
        answer.receive_head(200, SSE)
        answer.receive(HELLO + DONE)
        *_, usage, end = client_values(HELLO + answer.closing(counts(5, 2)))
        assert usage == {**ours(usage_chunk(5, 2))}
        assert end == "[DONE]"

    def test_without_usage_a_client_that_asked_still_gets_its_end(self):
        assert run(relay(usage=True), HELLO + DONE).endswith(event(ours(STOP)) + DONE)

    def test_other_fields_of_the_usage_chunk_are_kept(self):
        sent = {**usage_chunk(1, 1), "x_vendor": {"a": 1}}
        *_, usage, _end = client_values(run(relay(usage=True), HELLO + event(sent) + DONE))
        assert usage == ours(sent)


class TestChunks:
    def test_a_missing_or_null_delta_is_no_trouble(self):
        finish = [
            delta(None, finish_reason="stop"),
            chunk(choices=[{"index": 0, "finish_reason": "stop"}]),
        ]
        out = run(relay(), events(ROLE, chunk("Hello"), *finish) + DONE)
        assert client_values(out)[2:4] == [ours(value) for value in finish]

    def test_a_preamble_waits_for_the_first_choice(self):
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
        assert rest == [ours(ROLE), ours(chunk("Hello")), ours(bare), ours(STOP)]
        assert (answer.vendor_id, answer.vendor_model) == ("chatcmpl-v1", "vendor-m")

    def test_an_empty_finish_reason_is_null(self):
        answer = relay()
        out = run(answer, events(chunk("Hel", finish=""), chunk("lo", finish=""), STOP) + DONE)
        values = client_values(out)
        reasons = [value["choices"][0]["finish_reason"] for value in values[:-1]]
        assert reasons == [None, None, "stop"]
        assert text_of(out) == "Hello"

    def test_text_and_finish_reason_in_one_chunk_both_count(self):
        answer = relay()
        out = run(answer, events(ROLE, chunk("Hello"), chunk(" world", finish="length")) + DONE)
        assert text_of(out) == "Hello world"
        assert answer.finish_reason == "length"

    def test_choices_may_interleave(self):
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

    def test_a_stream_that_lost_one_of_its_choices_is_cut(self):
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
    def test_everything_a_model_produces_is_output(self, fields):
        answer = relay()
        run(answer, events(ROLE, delta(fields), STOP) + DONE)
        assert answer.has_output

    def test_a_role_and_an_empty_text_are_no_output(self):
        answer = relay()
        run(answer, events(ROLE, STOP) + DONE)
        assert not answer.has_output
        assert answer.complete

    def test_another_model_in_mid_stream_does_not_show(self):
        other = {**chunk("lo"), "model": "vendor-m-2"}
        out = run(relay(), events(ROLE, chunk("Hel"), chunk("l"), other, STOP) + DONE)
        assert b"vendor" not in out
        assert text_of(out) == "Hello"[:3] + "llo"

    def test_the_models_name_in_the_text_is_text(self):
        out = run(relay(), events(ROLE, chunk("I am"), chunk(' "model":"vendor-m"'), STOP) + DONE)
        assert text_of(out) == 'I am "model":"vendor-m"'


class TestEnds:
    def test_a_cut_without_finish_is_one_error_event_and_no_end_mark(self):
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

    def test_an_end_mark_without_finish_reason_is_a_good_end(self):
        answer = relay()
        out = run(answer, events(ROLE, chunk("Hello"), chunk()) + DONE)
        assert answer.complete
        assert answer.finish_reason is None
        assert out.endswith(DONE)

    def test_a_finish_reason_without_end_mark_is_a_good_end(self):
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
    def test_what_is_no_answer_is_a_502(self, stream, sent):
        answer = relay(stream=stream)
        assert run(answer, sent) == b""
        assert not answer.complete
        assert answer.failure.error.status == 502
        assert answer.failure.error.code == "upstream_failed_mid_response"
        assert not answer.failure.may_try_next

    def test_no_choices_but_usage_keeps_the_usage(self):
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
    def test_a_fault_after_content_is_an_error_event(self, fault, code):
        answer = relay()
        out = run(answer, events(ROLE, chunk("Hello")), fault=fault)
        assert client_values(out)[-1]["error"]["code"] == code
        assert b"[DONE]" not in out
        assert answer.mid_stream_failure.fault is fault

    def test_a_fault_after_the_finish_reason_changes_nothing(self):
        answer = relay()
        assert run(answer, HELLO, fault=Fault.CONNECTION_LOST) == run(relay(), HELLO + DONE)

    def test_a_fault_after_a_whole_body_changes_nothing(self):
        answer = relay(stream=False)
        out = run(answer, body(completion()), headers=JSON, fault=Fault.CONNECTION_LOST)
        assert json.loads(out) == ours(completion())

    def test_a_fault_in_half_a_body_is_a_failure(self):
        answer = relay(stream=False)
        run(answer, body(completion())[:40], headers=JSON, fault=Fault.IDLE_TIMEOUT)
        assert answer.failure.error.status == 504
        assert not answer.failure.error.should_retry

    def test_a_fault_before_anything_was_sent_may_go_to_the_next_route(self):
        answer = relay()
        answer.receive_fault(Fault.CONNECT_FAILED, request_sent=False)
        assert answer.failure.may_try_next
        assert answer.failure.error.status == 503
        assert answer.failure.error.should_retry

    def test_silence_after_the_request_is_not_tried_again(self):
        answer = relay()
        answer.receive_fault(Fault.FIRST_BYTE_TIMEOUT)
        assert answer.failure.error.status == 504
        assert answer.failure.may_have_billed
        assert not answer.failure.may_try_next

    def test_a_folded_stream_that_breaks_is_a_failure_that_may_have_cost(self):
        answer = relay(stream=False)
        assert run(answer, events(ROLE, chunk("Hello")), fault=Fault.CONNECTION_LOST) == b""
        assert answer.failure.error.code == "upstream_failed_mid_response"
        assert answer.failure.may_have_billed
        assert answer.has_output

    def test_we_can_end_a_stream_early_and_well_formed(self):
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

    def test_we_can_end_a_folded_stream_early(self):
        answer = relay(stream=False)
        answer.receive_head(200, SSE)
        answer.receive(events(ROLE, chunk("Hel")))
        assert answer.finish_early() == b""
        value = json.loads(answer.closing())
        assert value["choices"][0]["message"]["content"] == "Hel"
        assert value["choices"][0]["finish_reason"] == "length"

    def test_ending_early_does_not_touch_an_answer_that_has_ended(self):
        answer = relay()
        answer.receive_head(200, SSE)
        answer.receive(HELLO + DONE)
        assert answer.finish_early() == b""
        assert answer.finish_reason == "stop"

    def test_a_folded_stream_is_bounded(self):
        answer = relay(stream=False, max_body_bytes=1000)
        answer.receive_head(200, SSE)
        for _ in range(20):
            answer.receive(event(chunk("A" * 50)))
        assert answer.failure.fault is Fault.TOO_LARGE

    def test_a_body_is_bounded(self):
        answer = relay(stream=False, max_body_bytes=1000)
        run(answer, body(completion("A" * 1000)), headers=JSON)
        assert answer.failure.fault is Fault.TOO_LARGE


class TestErrors:
    def test_an_error_as_the_first_event_is_an_http_error(self):
        error = {"error": {"message": "context too long", "type": "BadRequestError", "code": 400}}
        answer = relay()
        assert run(answer, event(error) + DONE) == b""
        assert answer.failure.error.status == 400
        assert answer.failure.error.type == "invalid_request_error"
        assert "context too long" in answer.failure.error.message
        assert not answer.failure.error.should_retry
        assert not answer.failure.may_try_next

    def test_an_error_after_pings_is_an_http_error(self):
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
        ],
    )
    def test_errors_are_known_in_every_dialect(self, sent):
        answer = relay()
        out = run(answer, events(ROLE, chunk("Hi")) + sent + DONE)
        assert client_values(out)[-1]["error"]["code"] == "upstream_failed_mid_response"
        assert answer.mid_stream_failure.vendor_message == "x"

    def test_an_error_after_content_invents_no_finish(self):
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
    def test_an_error_under_200_has_the_status_it_names(self, sent, status, stream):
        answer = relay(stream=stream)
        assert run(answer, body(sent), headers=JSON) == b""
        assert answer.failure.error.status == status

    def test_an_html_error_page_never_reaches_the_client(self):
        answer = relay()
        page = b"<html><h1>502 Bad Gateway</h1></html>"
        assert run(answer, page, status=502, headers=[]) == b""
        assert answer.failure.error.status == 502
        assert b"<html" not in answer.failure.error.body()
        assert "<html>" in answer.failure.vendor_message
        assert answer.failure.may_try_next

    def test_a_429_keeps_its_wait(self):
        answer = relay()
        sent = body({"error": {"message": "Rate limit reached", "type": "rate_limit_error"}})
        run(answer, sent, status=429, headers=[*JSON, (b"retry-after", b"30")])
        assert answer.failure.error.status == 429
        assert ("retry-after", "30") in answer.failure.error.headers()
        assert ("x-should-retry", "true") in answer.failure.error.headers()

    def test_a_refused_option_is_told_to_the_driver(self):
        answer = relay()
        said = "Unrecognized request argument: stream_options"
        run(answer, body({"error": {"message": said}}), status=400, headers=JSON)
        assert answer.failure.rejects_stream_options

    def test_an_error_written_as_an_event_under_an_error_status_is_read(self):
        answer = relay()
        run(answer, event({"error": {"message": "too long"}}), status=400)
        assert answer.failure.vendor_message == "too long"

    def test_an_error_in_a_list_is_read(self):
        answer = relay()
        run(answer, body([{"error": {"message": "too long"}}]), status=400, headers=JSON)
        assert answer.failure.vendor_message == "too long"

    def test_a_redirect_is_a_failure(self):
        answer = relay()
        assert run(answer, b"", status=307, headers=[(b"location", b"http://x/")]) == b""
        assert answer.failure.error.status == 502

    def test_a_long_error_body_is_cut(self):
        answer = relay()
        run(answer, b"x" * 50_000, b"y" * 50_000, status=500, headers=[])
        assert len(answer.failure.vendor_message) <= MAX_ERROR_BODY_BYTES

    def test_a_fault_in_an_error_body_still_tells_the_status(self):
        answer = relay()
        run(answer, b'{"error":', status=400, headers=JSON, fault=Fault.CONNECTION_LOST)
        assert answer.failure.vendor_status == 400


EXCHANGES = [
    HELLO + event(usage_chunk(9, 2)) + DONE,
    events(*({**v, "usage": None} for v in (ROLE, chunk("a"), chunk("b"), chunk("c"), STOP))),
    events(ROLE, chunk("x"), chunk("y"), chunk("z"), STOP, usage_chunk(1, 1), end=b"\r\n\r\n"),
    events(ROLE, chunk("x"), chunk("y"), STOP, end=b"\r\r", lead=b"data:") + b"data:[DONE]\r\r",
    events(ROLE, chunk("x"), chunk("y"), chunk("z"), STOP, end=b"\n") + b"data: [DONE]\n",
    b": hi\n\n" + events(ROLE, chunk("x"), chunk("y"), chunk("你好"), chunk("\\"), chunk('"')),
    events(ROLE, chunk("x"), chunk("y"), {**chunk("z"), "model": "other"}, chunk("w"), STOP),
    events(ROLE, chunk("x"), chunk("y"), {"error": {"message": "no"}}, chunk("w")) + DONE,
    events(ROLE, chunk("x"), chunk("y")) + b"data: {oops\ndata: null\n\n" + event(chunk("z")),
    events(chunk("x"), chunk("y")) + event(chunk("z")).replace(b"z", b"\xff") + event(STOP) + DONE,
    events(*({**chunk(f"{at}"), "created": at} for at in range(6)), STOP) + DONE,
    events(*({**chunk("v"), "usage": counts(3, at)} for at in range(1, 4)), STOP) + DONE,
    events(ROLE, chunk("x"), chunk("y"), chunk("A" * 600), chunk("z"), STOP) + DONE,
    HELLO + DONE + events(chunk("late"), usage_chunk(2, 2)),
    b"\xef\xbb\xbf  \n" + HELLO,
    body(completion(usage=counts(3, 2))),
    b" \n " + body(completion()) + b"\ndata: [DONE]\n\n",
    event({"error": {"message": "first", "code": 400}}) + DONE,
    b"event: error\ndata: {}\n\n",
    b"<html>",
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("sent", EXCHANGES)
def test_byte_by_byte_gives_the_same_as_at_once(sent, stream):
    for usage in (True, False):
        whole = relay(stream=stream, usage=usage, max_event_bytes=500)
        expected = told(whole, run(whole, sent))
        bytewise = relay(stream=stream, usage=usage, max_event_bytes=500)
        assert told(bytewise, run(bytewise, *(bytes([b]) for b in sent))) == expected


@given(
    sent=st.sampled_from(EXCHANGES),
    cuts=st.lists(st.floats(0, 1), max_size=12),
    stream=st.booleans(),
    usage=st.booleans(),
    fault=st.sampled_from([None, Fault.CONNECTION_LOST]),
)
@settings(max_examples=300, deadline=None)
def test_any_chunking_of_the_same_bytes_gives_the_same(sent, cuts, stream, usage, fault):
    places = sorted({int(cut * len(sent)) for cut in cuts} | {0, len(sent)})
    reads = [sent[a:b] for a, b in itertools.pairwise(places)]
    whole = relay(stream=stream, usage=usage, max_event_bytes=500)
    cut = relay(stream=stream, usage=usage, max_event_bytes=500)
    expected = told(whole, run(whole, sent, fault=fault))
    assert told(cut, run(cut, *reads, fault=fault)) == expected


PIECES = st.one_of(
    st.sampled_from(
        [
            b"data: ",
            b"data:",
            b"\n",
            b"\n\n",
            b"\r\n",
            b"\r",
            b": c\n",
            b"event: error\n",
            b"{",
            b"}",
            b"null\n\n",
            DONE,
            event(ROLE),
            event(chunk("Hi")),
            event(chunk("Ho")),
            event(STOP),
            event(usage_chunk(1, 2)),
            event({"error": "x"}),
            event({**chunk("a"), "choices": [None, 1, {"index": "x", "delta": []}]}),
            event({"choices": {"a": 1}}),
            event({**chunk("b"), "usage": "many"}),
            event({**chunk("c"), "id": 5, "model": None}),
            body(completion()),
        ]
    ),
    st.binary(max_size=8),
)


@given(pieces=st.lists(PIECES, max_size=30), stream=st.booleans(), usage=st.booleans())
@settings(max_examples=400, deadline=None)
def test_whatever_arrives_the_client_gets_a_well_formed_answer_or_an_error(pieces, stream, usage):
    answer = relay(stream=stream, usage=usage)
    out = run(answer, *pieces)
    assert answer.ended
    assert answer.complete != bool(answer.failure or answer.mid_stream_failure)
    if not out:
        assert answer.failure is not None
        return
    if not stream:
        value = json.loads(out)
        assert value["id"] == ID
        assert value["object"] == "chat.completion"
        return
    values = client_values(out)
    assert ("error" in values[-1]) != (values[-1] == "[DONE]")
    assert all(value["id"] == ID and value["model"] == MODEL for value in values[:-1])


@given(pieces=st.lists(PIECES, max_size=20), stream=st.booleans())
@settings(max_examples=200, deadline=None)
def test_reading_byte_by_byte_cannot_be_seen_whatever_arrives(pieces, stream):
    sent = b"".join(pieces)
    whole, bytewise = relay(stream=stream), relay(stream=stream)
    expected = told(whole, run(whole, sent))
    assert told(bytewise, run(bytewise, *(bytes([b]) for b in sent))) == expected
