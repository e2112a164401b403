import dataclasses
import gzip
from uuid import UUID

import orjson
import pytest

from gateway.exchanges.masking import DOTS
from gateway.exchanges.record import (
    AnswerLeg,
    ClientLeg,
    Legs,
    VendorLeg,
    completion_of,
    summary_of,
    transcript_row,
)
from gateway.relay.capture import Capture, unpack

EXCHANGE = UUID("01890000-0000-7000-8000-000000000001")
KEY = "sk-abcdefghijklmnop1234"
REQUEST = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": f"my {KEY}"}]})
ANSWER = orjson.dumps(
    {"choices": [{"index": 0, "message": {"content": f"noted: {KEY}"}, "finish_reason": "stop"}]}
)
LEGS = Legs(
    client=ClientLeg(
        method="POST",
        path="/v1/chat/completions?api_key=sk-abcdefghijklmnop1234",
        http_version="1.1",
        address="203.0.113.38",
        headers=[(b"authorization", f"Bearer {KEY}".encode()), (b"cookie", b"CANARY-1")],
        size_bytes=len(REQUEST),
    ),
    vendor=(
        VendorLeg(
            number=1,
            vendor="north",
            vendor_model="vendor-m",
            url="http://127.0.0.1:1234/v1/chat/completions",
            include_usage=False,
            headers=[(b"authorization", b"Bearer vendor-credential")],
            size_bytes=90,
            at_ms=4.3,
            status=200,
            response_headers=[(b"content-type", b"application/json"), (b"x-secret", b"CANARY-2")],
            response_at_ms=20.5,
            response_size_bytes=len(ANSWER),
        ),
    ),
    answer=AnswerLeg(status=200, headers=[(b"content-type", b"application/json")], at_ms=21.0),
)


def captured(body: bytes) -> Capture:
    capture = Capture()
    capture.add(body)
    return capture


def a_row(legs: Legs = LEGS, **changes):
    bodies = {"request": REQUEST, "vendor_answer": captured(ANSWER), **changes}
    return transcript_row(EXCHANGE, 7, legs, **bodies)


def test_nothing_is_stored_unmasked() -> None:
    row = a_row()
    stored = orjson.dumps(row[2]) + unpack(row[4]) + unpack(row[5])
    for secret in (KEY, "CANARY", "vendor-credential"):
        assert secret.encode() not in stored
    assert row[2]["client"]["headers"] == [["Authorization", f"Bearer {DOTS}"], ["Cookie", DOTS]]
    assert row[2]["vendor"][0]["headers"] == [
        ["Authorization", f"Bearer {DOTS}"],
        ["Host", "127.0.0.1:1234"],
    ]
    assert orjson.loads(unpack(row[4]))["messages"][0]["content"] == f"my sk-{DOTS}"


def test_what_was_given_is_not_changed() -> None:
    answer = captured(ANSWER)
    a_row(vendor_answer=answer)
    assert unpack(answer.frames()) == ANSWER
    assert KEY.encode() in REQUEST


def test_an_answer_without_secrets_keeps_its_frames() -> None:
    answer = captured(b'{"choices": []}')
    assert a_row(vendor_answer=answer)[5] == answer.frames()


def test_legs_come_back_as_they_were_stored() -> None:
    stored = a_row()[2]
    assert Legs.from_json(orjson.loads(orjson.dumps(stored))).to_json() == stored


@pytest.mark.parametrize(
    ("policy", "kept"),
    [("content", (True, False, True, True)), ("summaries", (True, True, False, False))],
)
def test_the_tenant_chooses_what_is_stored(policy: str, kept: tuple[bool, ...]) -> None:
    row = a_row(dataclasses.replace(LEGS, policy=policy))
    assert tuple(column is not None for column in row[2:6]) == kept
    assert row[2]["policy"] == policy


def test_a_tenant_that_wants_nothing_kept_has_no_row() -> None:
    assert a_row(dataclasses.replace(LEGS, policy="nothing")) is None


def test_a_stored_summary_is_masked() -> None:
    summary = a_row(dataclasses.replace(LEGS, policy="summaries"))[3]
    assert summary["user_summary"]["text"] == f"my sk-{DOTS}"
    assert summary["assistant_summary"]["text"] == f"noted: sk-{DOTS}"


def test_the_summary_of_stored_bodies_is_the_same() -> None:
    row = a_row()
    assert (
        summary_of(unpack(row[4]), unpack(row[5]))
        == a_row(dataclasses.replace(LEGS, policy="summaries"))[3]
    )


def test_nul_and_half_characters_can_be_stored() -> None:
    request = b'{"messages": [{"role": "user", "content": "a\\u0000b"}]}'
    answer = captured(b'{"choices": [{"message": {"content": "hi \\ud83d there"}}]}')
    row = a_row(
        dataclasses.replace(LEGS, policy="summaries"), request=request, vendor_answer=answer
    )
    assert row[3]["user_summary"]["text"] == "a\ufffdb"
    assert row[3]["assistant_summary"]["text"] == "hi \ufffd there"


def test_a_compressed_request_is_masked_inside() -> None:
    row = a_row(request=gzip.compress(REQUEST), request_encoding="gzip")
    assert orjson.loads(unpack(row[4]))["messages"][0]["content"] == f"my sk-{DOTS}"


def test_a_compressed_answer_is_stored_plain() -> None:
    (leg,) = LEGS.vendor
    leg = dataclasses.replace(leg, response_headers=[(b"content-encoding", b"gzip")])
    row = a_row(
        dataclasses.replace(LEGS, vendor=[leg]), vendor_answer=captured(gzip.compress(ANSWER))
    )
    assert KEY.encode() not in unpack(row[5])
    assert row[2]["vendor"][0]["response_headers"] == [["Content-Encoding", "gzip"]]


def test_what_cannot_be_unpacked_is_not_stored() -> None:
    row = a_row(request=b"no gzip", request_encoding="gzip")
    assert row[4] is None


def test_our_own_error_is_kept() -> None:
    row = a_row(client_answer=b'{"error": {"message": "x"}}')
    assert unpack(row[6]) == b'{"error": {"message": "x"}}'


def test_a_stream_is_one_completion() -> None:
    stream = b"".join(
        b"data: "
        + orjson.dumps({"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]})
        + b"\n\n"
        for text in ("Hel", "lo")
    )
    assert completion_of(stream)["choices"][0]["message"]["content"] == "Hello"
    assert completion_of(b'{"choices": []}') == {"choices": []}
    assert completion_of(b"<html>") is None
