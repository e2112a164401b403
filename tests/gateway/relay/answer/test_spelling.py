"""How a vendor may write its bytes, and is still read."""

import gzip
import json
import zlib

import pytest

from gateway.relay.failures import Fault
from tests.gateway.relay.playbook import (
    DONE,
    HELLO,
    JSON,
    ROLE,
    SSE,
    STOP,
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
    text_of,
    usage_chunk,
)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\n"])
@pytest.mark.parametrize("lead", [b"data: ", b"data:", b"id: 7\ndata: ", b"event: x\ndata:"])
def test_every_spelling_of_an_event_reads_the_same(end, lead):
    answer = relay()
    sent = events(ROLE, chunk("Hel"), chunk("lo"), STOP, usage_chunk(23, 4), end=end, lead=lead)
    out = run(answer, sent + b"data:[DONE]" + end)
    assert out == run(relay(), HELLO + DONE)
    assert answer.raw_usage == counts(23, 4)


def test_comments_are_dropped():
    comment = b": OPENROUTER PROCESSING\n\n"
    sent = comment + comment.join(event(v) for v in (ROLE, chunk("Hello"), STOP)) + DONE
    answer = relay()
    answer.receive_head(200, SSE)
    assert answer.receive(b": keepalive 205/2048\n\n") == b""
    assert not answer.sent_any
    assert text_of(answer.receive(sent)) == "Hello"


def test_a_line_end_cut_in_two_is_one_line_end():
    first, second = event(chunk("Hello"), end=b"").split(b'"choices"')
    out = run(
        relay(),
        event(ROLE) + first + b"\r",
        b'\ndata: "choices"' + second + b"\r\n\r\n",
        event(STOP, end=b"\n\r\n") + DONE,
    )
    assert text_of(out) == "Hello"


def test_a_character_cut_in_two_arrives_whole():
    sent = event(ROLE) + event(chunk("你好，世界")) + event(STOP) + DONE
    cut = sent.index("你".encode()) + 1
    out = run(relay(), sent[:cut], sent[cut:])
    assert text_of(out) == "你好，世界"
    assert "�".encode() not in out


def test_the_last_event_needs_no_blank_line_if_it_is_whole():
    answer = relay()
    run(answer, HELLO + event(usage_chunk(18, 6), end=b""))
    assert answer.complete
    assert answer.raw_usage == counts(18, 6)


def test_a_null_event_is_dropped():
    out = run(relay(), event(ROLE) + b"data: null\n\n" + events(chunk("Hi"), STOP) + DONE)
    assert client_values(out) == [ours(ROLE), ours(chunk("Hi")), ours(STOP), "[DONE]"]


def test_an_event_that_is_no_json_is_left_out_and_counted():
    answer = relay()
    out = run(answer, event(ROLE) + b"data: {oops\n\n" + events(chunk("Hi"), STOP) + DONE)
    assert text_of(out) == "Hi"
    assert answer.skipped_events == 1


def test_an_event_above_a_megabyte_passes():
    out = run(relay(), events(ROLE, chunk("A" * 1_200_000), STOP) + DONE)
    assert text_of(out) == "A" * 1_200_000


@pytest.mark.parametrize("step", [1, 7, 5000])
def test_an_event_above_the_limit_ends_the_stream_with_an_error(step):
    sent = events(ROLE, chunk("Hi"), chunk("A" * 1100), chunk("more")) + DONE
    answer = relay(max_event_bytes=1000)
    out = run(answer, *(sent[at : at + step] for at in range(0, len(sent), step)))
    values = client_values(out)
    assert values[:2] == [ours(ROLE), ours(chunk("Hi"))]
    assert values[2]["error"]["code"] == "upstream_failed_mid_response"
    assert len(values) == 3
    assert answer.mid_stream_failure.fault is Fault.TOO_LARGE


def test_endless_data_lines_are_bounded():
    answer = relay(max_event_bytes=1000)
    answer.receive_head(200, SSE)
    for _ in range(200):
        answer.receive(b"data:\n")
    assert answer.failure.fault is Fault.TOO_LARGE


def test_not_a_number_becomes_null():
    text = event(chunk("Hi")).replace(b'"finish', b'"logprob":-Infinity,"x":[NaN,1],"finish')
    (value, *_) = client_values(run(relay(), text + event(STOP) + DONE))
    assert value["choices"][0]["logprob"] is None
    assert value["choices"][0]["x"] == [None, 1]
    sent = body(completion(usage=counts(10, 5))).replace(b'"index":0', b'"index":0,"p":NaN')
    answer = relay(stream=False)
    assert json.loads(run(answer, sent, headers=JSON))["choices"][0]["p"] is None
    assert answer.raw_usage == counts(10, 5)


def test_nul_and_half_surrogates_pass():
    sent = events(ROLE, chunk("Hi")) + event(chunk("x")).replace(b'"x"', rb'"\u0000\ud83d"')
    out = run(relay(), sent + event(STOP) + DONE)
    assert text_of(out) == "Hi\x00\ud83d"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw"])
def test_compression_nobody_asked_for_is_undone(encoding):
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


def test_the_first_byte_tells_gzip_whatever_the_label():
    plain = HELLO + DONE
    assert run(relay(), gzip.compress(plain)) == run(relay(), plain)
    assert run(relay(), plain, headers=[(b"content-encoding", b"gzip")]) == run(relay(), plain)
    answer = relay()
    said = gzip.compress(body({"error": {"message": "too long"}}))
    run(answer, said, status=400, headers=[*JSON, (b"content-encoding", b"gzip")])
    assert answer.failure.vendor_message == "too long"


def test_a_compression_bomb_is_a_failure():
    packed = gzip.compress(b" " * 30_000_000)
    answer = relay()
    run(answer, packed, headers=[*SSE, (b"content-encoding", b"gzip")])
    assert answer.failure.error.status == 502


def test_an_encoding_that_is_not_spoken_is_a_failure():
    answer = relay()
    packed = bytes.fromhex("0b0280646174613a207b7d0a0a03")
    assert run(answer, packed, headers=[*SSE, (b"content-encoding", b"br")]) == b""
    assert answer.failure.error.status == 502
    assert answer.failure.vendor_message.endswith("(content encoding br)")


@pytest.mark.parametrize("label", [b"br", b"utf-8", b"none", b"gzip, identity", b"aws-chunked"])
def test_a_label_on_plain_text_is_not_believed(label):
    out = run(relay(), HELLO + DONE, headers=[*SSE, (b"content-encoding", label)])
    assert out == run(relay(), HELLO + DONE)


def test_two_layers_of_compression_are_undone_and_no_more():
    plain = HELLO + DONE
    twice = gzip.compress(gzip.compress(plain))
    headers = [*SSE, (b"content-encoding", b"gzip, gzip")]
    bytewise = [twice[at : at + 1] for at in range(len(twice))]
    assert run(relay(), *bytewise, headers=headers) == run(relay(), plain)
    answer = relay()
    assert run(answer, gzip.compress(twice), headers=headers) == b""
    assert answer.failure.error.status == 502


@pytest.mark.parametrize(
    "mark",
    [
        b"data: [DONE]",
        b"data:[DONE] \n\n",
        b"[DONE]\n\n",
        b'data: "[DONE]"\n\n',
        b"data: [done]\n\n",
        b"event: done\ndata:\n\n",
        b"event: done\ndata: {}\n\n",
        b"event: end\ndata: bye\n\n",
        DONE + DONE,
    ],
)
def test_every_end_mark_ends_a_stream_without_a_finish_reason(mark):
    answer = relay()
    out = run(answer, events(ROLE, chunk("Hello")) + mark)
    assert client_values(out) == [ours(ROLE), ours(chunk("Hello")), "[DONE]"]
    assert answer.complete


@pytest.mark.parametrize("lead", [b"DATA: ", b"Data:", b"  data: ", b"data : "])
def test_the_field_of_an_event_is_read_kindly(lead):
    sent = (HELLO + DONE).replace(b"data: ", lead)
    assert run(relay(), sent) == run(relay(), HELLO + DONE)


def test_an_object_may_be_written_over_many_lines():
    sent = [b"data: %b\n\n" % json.dumps(value, indent=2).encode() for value in (ROLE, STOP)]
    assert client_values(run(relay(), *sent)) == [ours(ROLE), ours(STOP), "[DONE]"]


@pytest.mark.parametrize("stream", [True, False])
def test_the_chunks_of_a_stream_may_come_as_lines_or_as_a_list(stream):
    chunks = [ROLE, chunk("Hel"), chunk("lo"), STOP, usage_chunk(9, 2)]
    expected = run(relay(stream=stream), HELLO + event(usage_chunk(9, 2)) + DONE)
    for sent in (b"".join(body(value) + b"\n" for value in chunks), body(chunks)):
        answer = relay(stream=stream)
        assert run(answer, sent, headers=JSON) == expected
        assert answer.raw_usage == counts(9, 2)


def test_lines_that_are_cut_off_are_no_whole_answer():
    answer = relay()
    out = run(answer, body(ROLE) + b"\n" + body(chunk("Hel")) + b"\n" + body(STOP)[:-9])
    assert text_of(out) == "Hel"
    assert answer.mid_stream_failure is not None


def test_a_completion_may_stand_alone_in_a_list():
    out = run(relay(stream=False), body([completion(usage=counts(3, 4))]), headers=JSON)
    assert json.loads(out) == ours(completion(usage=counts(3, 4)))


def test_a_byte_that_is_no_text_costs_that_byte_only():
    sent = events(ROLE, chunk("Hi")) + event(chunk("caf|")).replace(b"|", b"\xe9") + event(STOP)
    assert text_of(run(relay(), sent + DONE)) == "Hicaf\ufffd"


def test_what_was_said_instead_of_events_is_told_to_staff():
    answer = relay()
    run(answer, b"dial tcp: connection refused\n")
    assert answer.failure.vendor_message == (
        "no answer in the stream: dial tcp: connection refused"
    )
    answer = relay()
    run(answer, b"data: not now\n\n" + DONE)
    assert answer.failure.vendor_message == "no answer in the stream: not now"
