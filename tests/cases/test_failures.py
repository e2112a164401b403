"""Group e: vendors that fail, and bodies that are hostile or unusual."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from billing.models import Exchange
from gateway.models import Transcript
from tests.cases.runner import (
    BEARER,
    NO_ROW,
    NOTHING,
    TYPED,
    Ask,
    Case,
    Gets,
    Played,
    estimated,
    reading_slowly,
    settled_rows,
    vendors,
)
from tests.cases.wire import (
    EVENTS,
    HELLO,
    JSON,
    ROLE,
    STOP,
    Answer,
    chunk,
    completion,
    counts,
    event,
    stream,
    text,
    usage,
    whole,
)
from tests.stack import until

PAID = vendors(10, 5, "0.00003")
STREAM = Ask(fields={"stream": True})
QUICK = {"first_byte_timeout_ms": 600, "idle_timeout_ms": 600}
SILENT = Answer(framing="none", end="silence")
BLANKS = b" \n" * 50
MEGABYTE = 1024 * 1024
FLOOD_BYTES = 60 * MEGABYTE
CUT = {"error": "upstream_failed_mid_response", "done": False}
NOT_JSON = Gets(status=400)
LOGPROBS = {"content": [{"token": "He", "logprob": "X", "bytes": None, "top_logprobs": []}]}


def raw(body: bytes, *headers: tuple[str, str]) -> Ask:
    return Ask(raw=body, headers=(*BEARER, *(headers or TYPED)))


def asked(members: bytes, content: bytes = b"hi") -> Ask:
    message = b'{"role":"user","content":"%b"}' % content
    return raw(b'{"model":"{model}","messages":[%b]%b}' % (message, members))


def error(status: str, message: str, *headers: str, **fields: str) -> Answer:
    return whole({"error": {"message": message, **fields}}, status=status, headers=headers)


def with_logprob(value: str) -> Answer:
    choice = completion()["choices"][0]
    body = completion(tokens=counts(10, 5), choices=[{**choice, "logprobs": LOGPROBS}])
    return whole(json.dumps(body).replace('"X"', value).encode())


def took_less_than(seconds: float):
    def check(played: Played) -> None:
        assert played.got.seconds < seconds

    return check


def both_legs_are_kept(played: Played) -> None:
    until(Transcript.objects.filter(exchange_id=played.exchange.id).exists)


def is_kept_with_a_true_duration(played: Played) -> None:
    assert played.exchange.duration_ms >= 500


CASES = [
    # --- what a vendor says when it fails -------------------------------------------------
    Case(
        id="E01",
        rule="markup is never shown",
        sends=whole(
            b"<html><head><title>502 Bad Gateway</title></head><body>cloud</body></html>",
            status="502 Bad Gateway",
            label="text/html",
        ),
        gets=Gets(status=502, error="upstream_unavailable", lacks=("<html", "cloud")),
        pays=NOTHING,
    ),
    Case(
        id="E02",
        rule="an error that is a text is an error under 200 as well",
        sends=whole({"error": "Unexpected endpoint or method. (POST /chat/completions)"}),
        gets=Gets(status=502, error="upstream_unavailable"),
        pays=NOTHING,
    ),
    Case(
        id="E03",
        rule="an error object under 200 is what its code says",
        sends=whole({"id": "gen-1", "error": {"message": "overloaded", "code": 429}}),
        gets=Gets(status=(429, 502, 503), headers={"x-should-retry": "true"}),
        pays=NOTHING,
    ),
    Case(
        id="E03b",
        rule="blanks before a body are nothing",
        sends=Answer(
            pieces=[BLANKS, BLANKS, json.dumps(completion(tokens=counts(10, 5))).encode()],
            between_s=0.1,
        ),
        gets=Gets(text="Hello"),
        pays=PAID,
    ),
    Case(
        id="E03b-dot",
        rule="blanks and a dot are no answer",
        sends=Answer(pieces=[BLANKS, b"."]),
        gets=Gets(status=502, error="upstream_failed_mid_response"),
        pays=NOTHING,
    ),
    Case(
        id="E04",
        rule="an answer without a choice is a failure",
        sends=whole(completion(choices=[], tokens=counts(10, 0))),
        gets=Gets(status=502, error="upstream_failed_mid_response"),
        pays=NOTHING,
    ),
    Case(
        id="E05",
        rule="a vendor's wait is passed on",
        sends=error(
            "429 Too Many Requests",
            "Rate limit reached",
            "Retry-After: 30",
            type="rate_limit_error",
        ),
        gets=Gets(
            status=429,
            error="upstream_rate_limited",
            headers={"retry-after": "30", "x-should-retry": "true"},
        ),
        pays=NOTHING,
    ),
    # --- connections that break -----------------------------------------------------------
    Case(
        id="E07",
        rule="a reset after text is an error event, and what came is estimated",
        sends=stream(ROLE, *(text(f"w{number} ") for number in range(10)), done=False, end="reset"),
        asks=STREAM,
        gets=Gets(text="".join(f"w{number} " for number in range(10)), lacks=('"stop"',), **CUT),
        pays=estimated((5, 35), outcome="partial"),
    ),
    Case(
        id="E07-close",
        rule="so is a connection that is closed in the middle of its coding",
        sends=stream(ROLE, text("w0 "), text("w1"), done=False, end="cut"),
        asks=STREAM,
        gets=Gets(text="w0 w1", **CUT),
        pays=estimated((1, 8), outcome="partial"),
    ),
    Case(
        id="E08",
        rule="a vendor that says nothing is given up in time",
        sends=SILENT,
        gets=Gets(status=504, error="upstream_timeout", headers={"x-should-retry": "false"}),
        pays=NOTHING,
        vendor=QUICK,
        also=took_less_than(4.0),
    ),
    Case(
        id="E08-head",
        rule="so is one that stops after its head",
        sends=Answer(end="silence"),
        gets=Gets(status=504, error="upstream_timeout"),
        pays=NOTHING,
        vendor=QUICK,
        also=is_kept_with_a_true_duration,
    ),
    Case(
        id="E10",
        rule="a stall after text is an error event in time",
        sends=stream(ROLE, text("Hello"), done=False, end="silence"),
        asks=STREAM,
        gets=Gets(text="Hello", error="upstream_timeout", done=False),
        pays=estimated((1, 4), outcome="partial"),
        vendor=QUICK,
        also=took_less_than(4.0),
    ),
    # --- bodies that are large, deep or no JSON -------------------------------------------
    Case(
        id="E15",
        rule="a body of megabytes is served",
        asks=asked(b"", b"A" * 6_000_000),
        gets=Gets(text="Hello"),
        pays=PAID,
        balance="100",
    ),
    Case(
        id="E15-large",
        rule="one above the limit is refused, whether it has been sent or not",
        asks=asked(b"", b"A" * 60_000_000),
        gets=Gets(status=413, error="request_too_large"),
        pays=NO_ROW,
        calls=0,
    ),
    Case(
        id="E16",
        rule="deep nesting is refused",
        asks=asked(b',"x":%b%b' % (b"[" * 20_000, b"]" * 20_000)),
        gets=Gets(status=400),
        pays=NOTHING,
        calls=0,
    ),
    *(
        Case(
            id=f"E24-{name}",
            rule="no JSON object, no request",
            asks=asks,
            gets=NOT_JSON,
            pays=NOTHING,
            calls=0,
        )
        for name, asks in {
            "list": raw(b"[1,2,3]"),
            "empty": raw(b""),
            "null": raw(b"null"),
            "number": raw(b"42"),
            "text": raw(b'"x"'),
            "brace": raw(b"{"),
            "model": raw(b'{"model":["a"],"messages":[]}'),
            "nul-model": raw(b'{"model":"{model}\\u0000","messages":[{"role":"user"}]}'),
            "messages-text": raw(b'{"model":"{model}","messages":"hi"}'),
            "messages-null": raw(b'{"model":"{model}","messages":null}'),
            "messages-none": raw(b'{"model":"{model}"}'),
            "messages-texts": raw(b'{"model":"{model}","messages":["hi"]}'),
            "latin": raw(b'{"model":"\xff"}'),
            "charset": raw(
                b'{"model":"{model}","messages":[{"role":"user","content":"hi"}]}',
                ("Content-Type", "application/json; charset=does-not-exist"),
            ),
            "utf16": raw('{"model":"{model}","messages":[]}'.encode("utf-16")),
        }.items()
    ),
    *(
        Case(
            id=f"E20b-{name}",
            rule="a number that is none is refused",
            asks=asked(members),
            gets=NOT_JSON,
            pays=NOTHING,
            calls=0,
        )
        for name, members in {
            "nan": b',"temperature":NaN,"x":1e400',
            "infinity": b',"top_p":Infinity',
            "minus": b',"top_p":-Infinity',
            "huge": b',"x":1e400',
        }.items()
    ),
    Case(
        id="E21",
        rule="half a surrogate pair is refused",
        asks=asked(b"", b"hi \\ud83d there"),
        gets=NOT_JSON,
        pays=NOTHING,
        calls=0,
    ),
    # --- bodies that are unusual ----------------------------------------------------------
    Case(
        id="E17",
        rule="fields that nobody knows pass both ways",
        sends=whole(
            completion(
                tokens=counts(10, 5),
                choices=[
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": "Hello",
                            "reasoning_content": "hm",
                        },
                        "finish_reason": "stop",
                    }
                ],
                x_extra={"k": 1},
            )
        ),
        asks=Ask(
            fields={
                "reasoning": {"effort": "low"},
                "x_vendor": {"a": [1, None, {"b": 2}]},
                "messages": [
                    {"role": "user", "content": "hi", "cache_control": {"type": "ephemeral"}}
                ],
            }
        ),
        gets=Gets(text="Hello", has=('"reasoning_content":"hm"', '"x_extra":{"k":1}')),
        pays=PAID,
        sent={
            "reasoning.effort": "low",
            "x_vendor": {"a": [1, None, {"b": 2}]},
            "messages.0.cache_control.type": "ephemeral",
        },
    ),
    Case(
        id="E18",
        rule="zeros and empty values are values",
        asks=Ask(
            fields={
                "temperature": 0,
                "presence_penalty": 0,
                "seed": 0,
                "stop": [],
                "logit_bias": {},
                "parallel_tool_calls": False,
                "messages": [{"role": "user", "content": ""}],
            }
        ),
        pays=PAID,
        sent={
            "temperature": 0,
            "presence_penalty": 0,
            "seed": 0,
            "stop": [],
            "logit_bias": {},
            "parallel_tool_calls": False,
            "messages.0.content": "",
        },
    ),
    *(
        Case(
            id=f"E20-{name}",
            rule="the client gets legal JSON where the vendor wrote none",
            sends=with_logprob(value),
            asks=Ask(fields={"logprobs": True}),
            gets=Gets(text="Hello", has=('"logprob":null',)),
            pays=PAID,
            also=both_legs_are_kept,
        )
        for name, value in {"minus": "-Infinity", "nan": "NaN", "huge": "-1e999"}.items()
    ),
    Case(
        id="E20-stream",
        rule="in a stream too",
        sends=stream(
            ROLE,
            event(chunk({"index": 0, "delta": {"content": "Hello"}, "logprobs": LOGPROBS})).replace(
                b'"X"', b"NaN"
            ),
            STOP,
            usage(10, 5),
        ),
        asks=STREAM,
        gets=Gets(text="Hello", done=True, has=('"logprob":null',)),
        pays=PAID,
    ),
    Case(
        id="E22",
        rule="a NUL in a text passes, and is stored without",
        sends=whole(completion("x\x00y", tokens=counts(10, 5))),
        asks=asked(b',"user":"u\\u0000"', b"a\\u0000b"),
        gets=Gets(text="x\x00y"),
        pays=PAID,
        sent={"messages.0.content": "a\x00b", "user": "u\x00"},
        also=both_legs_are_kept,
    ),
    *(
        Case(
            id=f"E23-{name}",
            rule="what a client accepts does not matter: it gets what it asked for",
            sends=stream(ROLE, text("Hello"), STOP, usage(10, 2)),
            asks=replace(STREAM, headers=(*BEARER, *TYPED, *headers)),
            gets=Gets(kind=EVENTS, text="Hello", done=True),
            pays=vendors(10, 2, "0.000018"),
        )
        for name, headers in {
            "events": (("Accept", EVENTS),),
            "all": (("Accept", "*/*"),),
            "json": (("Accept", JSON),),
            "html": (("Accept", "text/html"),),
            "none": (),
        }.items()
    ),
    Case(
        id="E28",
        rule="a stream that is null is none",
        asks=asked(b',"stream":null'),
        gets=Gets(kind=JSON, text="Hello"),
        pays=PAID,
    ),
    *(
        Case(
            id=f"E28-{name}",
            rule="a flag of another type is refused",
            asks=asked(b',"stream":' + value),
            gets=NOT_JSON,
            pays=NOTHING,
            calls=0,
        )
        for name, value in {"true": b'"true"', "false": b'"false"', "one": b"1"}.items()
    ),
    Case(
        id="E29",
        rule="content may be parts, null, or of a kind that nobody knows",
        asks=Ask(
            fields={
                "messages": [
                    {
                        "role": "user",
                        "name": "ann",
                        "content": [
                            {"type": "text", "text": "hi"},
                            {"type": "x_new", "data": {"a": 1}},
                        ],
                    },
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {
                                "id": "c1",
                                "type": "function",
                                "function": {"name": "f", "arguments": "{}"},
                            }
                        ],
                    },
                    {
                        "role": "tool",
                        "tool_call_id": "c1",
                        "content": [{"type": "text", "text": "ok"}],
                    },
                ]
            }
        ),
        pays=PAID,
        sent={"messages.0.content.1.type": "x_new", "messages.1.content": None},
    ),
    # --- played step by step below --------------------------------------------------------
    Case(
        id="E11",
        rule="a slow reader slows the vendor",
        sends=stream(text("A" * 65_536), times=FLOOD_BYTES // 65_536, done=False),
        asks=STREAM,
        pays=estimated((0, 10**9)),
    ),
    Case(
        id="E14",
        rule="a time-out gives its slot back",
        sends=(*[SILENT] * 5, HELLO),
        pays=PAID,
        vendor=QUICK,
        key={"concurrent_requests": 2},
    ),
]
BY_ID = {case.id: case for case in CASES}
STEPS = {"E11", "E14"}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.id not in STEPS], ids=lambda case: case.id
)
def test_failures(stage, case: Case) -> None:
    stage.play(case)


def test_e11_a_slow_reader_slows_the_vendor_and_takes_no_memory(stage) -> None:
    case = BY_ID["E11"]
    caller = stage.caller(case)
    pid = stage.gateway_pid
    resident = []
    for times in (1, 2):  # the first one brings what a gateway reads from disk once
        with reading_slowly(case, caller) as client:
            assert client.recv(64).startswith(b"HTTP/1.1 200")
            call = until(lambda times=times: stage.vendor.heard(case.model)[times - 1 :])[0]
            until(lambda call=call: is_stuck(call))
            assert call.sent_bytes < FLOOD_BYTES / 2
            resident.append(resident_bytes(pid))
        until(call.left.is_set)
        ended = Exchange.objects.filter(tenant_id=caller.tenant.pk).exclude(state="open")
        until(lambda times=times, ended=ended: ended.count() == times)
    assert resident[1] - resident[0] < 20 * MEGABYTE
    assert set(ended.values_list("status_code", flat=True)) == {200}


def is_stuck(call) -> bool:
    """True where the vendor could send nothing for a while."""
    sent = call.sent_bytes
    call.left.wait(0.4)
    return 0 < sent == call.sent_bytes


def resident_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024


def test_e14_a_time_out_gives_its_slot_back(stage) -> None:
    case = BY_ID["E14"]
    caller = stage.caller(case)
    for _ in range(5):
        begun_s = time.monotonic()
        got = stage.call(case, caller)
        assert (got.status, got.json()["error"]["code"]) == (504, "upstream_timeout")
        assert time.monotonic() - begun_s < 4.0
    assert stage.call(case, caller).status == 200
    rows = settled_rows(caller, "failed", 5)
    assert {row.charge.charge_nanos for row in rows} == {0}
    until(lambda: caller.balance()[1] == 0)
