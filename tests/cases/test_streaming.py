"""Group a: how answers are written on the wire, and that no client has to know."""

import gzip

import pytest

from tests.cases.runner import NOTHING, Ask, Case, Gets, Played, estimated, vendors
from tests.cases.wire import (
    DONE,
    EVENTS,
    HELLO,
    JSON,
    ROLE,
    STOP,
    Answer,
    chunk,
    completion,
    counts,
    delta,
    event,
    stream,
    text,
    usage,
    whole,
)

STREAM = Ask(fields={"stream": True})
WITH_USAGE = Ask(fields={"stream": True, "stream_options": {"include_usage": True}})
SPOKEN = Gets(text="Hello", done=True)
EVENTS_OF_HELLO = (ROLE, text("Hel"), text("lo"), STOP)
LONG = "A" * 1_200_000
KEEPALIVES = [b": keepalive %d/2048\n\n" % (205 * number) for number in range(1, 11)]
QUICK = {"first_byte_timeout_ms": 1_000, "idle_timeout_ms": 1_000}
ZIPPED = gzip.compress(b"".join(map(event, (*EVENTS_OF_HELLO, usage(36, 2)))) + DONE)
CUT = {"error": "upstream_failed_mid_response", "done": False}


def hello(prompt: int, completion: int, *, end: bytes = b"\n\n", lead: bytes = b"data: ") -> Answer:
    values = (*EVENTS_OF_HELLO, usage(prompt, completion))
    pieces = [event(value, end=end, lead=lead) for value in values]
    return stream(*pieces, lead + b"[DONE]" + end, done=False)


def split(data: bytes, *marks: bytes) -> list[bytes]:
    """Cut before each mark."""
    pieces = []
    for mark in marks:
        head, tail = data.split(mark, 1)
        pieces.append(head)
        data = mark + tail
    return [*pieces, data]


def is_legal_and_silent_of_comments(played: Played) -> None:
    lines = [line for line in played.got.body.split(b"\n") if line]
    assert all(line.startswith((b"data: ", b": ")) for line in lines)


def first_text_is_not_held_back(played: Played) -> None:
    """The vendor's last text leaves it two pauses after its first."""
    got = played.got
    assert got.seconds_to(b'"c"') - got.seconds_to(b'"a"') > 0.5
    assert "content-encoding" not in got.headers
    assert "no-cache" in got.headers["cache-control"]


def heard_while_waiting(played: Played) -> None:
    assert played.got.body.count(b": waiting\n\n") >= 2
    assert played.got.body.startswith(b": waiting\n\n")


def both_attempts_are_kept(played: Played) -> None:
    names = [attempt["vendor"] for attempt in played.exchange.attempts]
    assert names == [f"{played.case.model}-0", f"{played.case.model}-1"]


CASES = [
    # --- one body or a stream, whatever the label says --------------------------------------
    Case(
        id="A01",
        rule="a body labelled as an event stream is a body",
        sends=whole(completion(tokens=counts(21, 7)), label=f"{EVENTS}; charset=utf-8"),
        gets=Gets(kind=JSON, has=('"Hello"', '"usage"'), lacks=("data:",)),
        pays=vendors(21, 7, "0.000049"),
    ),
    Case(
        id="A01-stream",
        rule="a client that streams gets a stream of one body",
        sends=whole(completion(tokens=counts(21, 7))),
        asks=WITH_USAGE,
        gets=Gets(kind=EVENTS, text="Hello", done=True, usage_chunks=1, finish="stop"),
        pays=vendors(21, 7, "0.000049"),
    ),
    Case(
        id="A03",
        rule="a stream labelled as a body is folded for a client that does not stream",
        sends=stream(*EVENTS_OF_HELLO, usage(9, 2), label=JSON),
        asks=Ask(fields={"stream": False}),
        gets=Gets(kind=JSON, text="Hello", has=('"chat.completion"',), lacks=("data:",)),
        pays=vendors(9, 2, "0.000017"),
    ),
    # --- spelling of events ------------------------------------------------------------------
    Case(
        id="A05",
        rule="the space after the colon is optional",
        sends=hello(23, 4, lead=b"data:"),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(23, 4, "0.000039"),
    ),
    Case(
        id="A06",
        rule="comments are no data",
        sends=stream(
            b": OPENROUTER PROCESSING\n\n",
            ROLE,
            b": OPENROUTER PROCESSING\n\n",
            text("Hello"),
            STOP,
            usage(12, 5),
        ),
        asks=STREAM,
        gets=Gets(text="Hello", done=True, lacks=("OPENROUTER",)),
        pays=vendors(12, 5, "0.000032"),
        also=is_legal_and_silent_of_comments,
    ),
    Case(
        id="A08",
        rule="comments keep a vendor alive beyond its idle limit",
        sends=stream(*KEEPALIVES, *EVENTS_OF_HELLO, usage(2048, 2), between_s=0.15),
        asks=STREAM,
        gets=Gets(text="Hello", done=True, lacks=("keepalive",)),
        pays=vendors(2048, 2, "0.002056"),
        vendor=QUICK,
    ),
    Case(
        id="A09",
        rule="lines may end in CRLF",
        sends=hello(31, 3, end=b"\r\n\r\n"),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(31, 3, "0.000043"),
    ),
    Case(
        id="A09-cr",
        rule="lines may end in CR",
        sends=hello(31, 3, end=b"\r\r"),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(31, 3, "0.000043"),
    ),
    Case(
        id="A11",
        rule="a CRLF cut in two is one line end, and data lines of one event are one text",
        sends=stream(
            ROLE,
            b'data: {"id":"x","object":"chat.completion.chunk","model":"vendor-m",\r',
            b'\ndata: "choices":[{"index":0,"delta":{"content":"Hello"}}]}\r\n\r\n',
            event(STOP, end=b"\n\r\n"),
            usage(19, 2),
        ),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(19, 2, "0.000027"),
    ),
    Case(
        id="A12",
        rule="a character cut in two is one character",
        sends=stream(
            ROLE, *split(event(text("你好，世界")), b"\xbd\xa0"), event(STOP) + event(usage(11, 5))
        ),
        asks=STREAM,
        gets=Gets(text="你好，世界", done=True, lacks=("\ufffd",)),
        pays=vendors(11, 5, "0.000031"),
    ),
    Case(
        id="A13",
        rule="an event cut in three is one event",
        sends=stream(ROLE, text("Hello"), STOP, *split(event(usage(18, 6)), b"pt_tokens", b"8,")),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(18, 6, "0.000042"),
    ),
    Case(
        id="A15",
        rule="a single newline may part events, and no event needs an object field",
        sends=stream(
            *(
                event({**value, "object": None}, end=b"\n")
                for value in (*EVENTS_OF_HELLO, usage(16, 2))
            ),
            b"data: [DONE]\n",
            done=False,
        ),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(16, 2, "0.000024"),
    ),
    Case(
        id="A15-eof",
        rule="the last event counts also where the stream ends in the middle of its line end",
        sends=stream(*EVENTS_OF_HELLO, event(usage(16, 2), end=b""), done=False),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(16, 2, "0.000024"),
    ),
    # --- ends --------------------------------------------------------------------------------
    Case(
        id="A17",
        rule="a stream without an end is an error, and what was delivered is estimated",
        sends=stream(ROLE, text("The answer"), text(" is"), done=False),
        asks=STREAM,
        gets=Gets(text="The answer is", **CUT),
        pays=estimated((1, 10), outcome="partial"),
    ),
    Case(
        id="A17-body",
        rule="a client that does not stream gets an error for it, and pays nothing",
        sends=stream(ROLE, text("The answer"), text(" is"), done=False),
        gets=Gets(status=502, error="upstream_failed_mid_response", lacks=("answer is",)),
        pays=NOTHING,
    ),
    Case(
        id="A19",
        rule="an end mark ends a stream that gave no finish reason",
        sends=stream(ROLE, text("Hello"), delta({}), usage(20, 2)),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(20, 2, "0.000028", outcome="answered"),
    ),
    # --- errors under 200 --------------------------------------------------------------------
    Case(
        id="A20",
        rule="an error as the first event is an HTTP error",
        sends=stream(
            {"error": {"message": "context too long", "type": "BadRequestError", "code": 400}}
        ),
        asks=STREAM,
        gets=Gets(status=400, has=("context too long",)),
        pays=NOTHING,
    ),
    Case(
        id="A22",
        rule="an error event needs no event line, and pings are nothing",
        sends=stream(
            {"type": "ping"},
            {"type": "ping"},
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
            done=False,
        ),
        asks=STREAM,
        gets=Gets(status=503, error="upstream_unavailable", headers={"x-should-retry": "true"}),
        pays=NOTHING,
    ),
    Case(
        id="A24",
        rule="an error after text is an error event, and its words are not charged",
        sends=stream(
            ROLE,
            text("Part one."),
            text(" Part two"),
            {"error": {"message": "capacity", "code": 503}},
        ),
        asks=STREAM,
        gets=Gets(text="Part one. Part two", lacks=('"stop"', "capacity"), **CUT),
        pays=estimated((1, 12), outcome="partial"),
    ),
    # --- usage -------------------------------------------------------------------------------
    Case(
        id="A26",
        rule="a usage chunk that nobody asked for is not sent on",
        sends=stream(ROLE, text("Hello"), STOP, usage(22, 3)),
        asks=STREAM,
        gets=Gets(text="Hello", done=True, usage_chunks=0),
        pays=vendors(22, 3, "0.000034"),
    ),
    Case(
        id="A27",
        rule="the usage that we ask for does not leak",
        sends=stream(
            {**ROLE, "usage": None},
            text("Hello", usage=None),
            {**STOP, "usage": None},
            usage(25, 4),
        ),
        asks=STREAM,
        gets=Gets(text="Hello", done=True, usage_chunks=0),
        pays=vendors(25, 4, "0.000041"),
        sent={"stream": True, "stream_options.include_usage": True},
    ),
    Case(
        id="A29",
        rule="usage that comes twice is sent on and charged once",
        sends=stream(ROLE, text("Hello"), {**STOP, "usage": counts(23, 235)}, usage(23, 235)),
        asks=WITH_USAGE,
        gets=Gets(text="Hello", done=True, usage_chunks=1),
        pays=vendors(23, 235, "0.000963"),
    ),
    Case(
        id="A31",
        rule="a usage chunk may have choices",
        sends=stream(
            ROLE,
            text("Hello"),
            STOP,
            chunk(
                {"index": 0, "delta": {}},
                usage=counts(65, 251, prompt_tokens_details={"cached_tokens": 64}),
            ),
        ),
        asks=WITH_USAGE,
        gets=Gets(text="Hello", done=True, usage_chunks=1),
        pays=vendors(65, 251, "0.0010114", cached=64),
    ),
    Case(
        id="A32",
        rule="of usage that grows with every chunk the last counts",
        sends=stream(
            text("A", usage=counts(40, 10)),
            text(" B", usage=counts(40, 50)),
            {**STOP, "usage": counts(40, 100)},
        ),
        asks=STREAM,
        gets=Gets(text="A B", done=True, usage_chunks=0),
        pays=vendors(40, 100, "0.00044"),
    ),
    Case(
        id="A34",
        rule="usage may be incomplete at first",
        sends=stream(
            text("Hel", usage={"prompt_tokens": 11, "total_tokens": 11}),
            text("lo"),
            STOP,
            usage(11, 6),
        ),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(11, 6, "0.000035"),
    ),
    Case(
        id="A35",
        rule="usage may be inside a choice",
        sends=stream(
            ROLE,
            text("Hello"),
            chunk({"index": 0, "delta": {}, "finish_reason": "stop", "usage": counts(33, 9)}),
        ),
        asks=STREAM,
        gets=Gets(text="Hello", done=True, lacks=("usage",)),
        pays=vendors(33, 9, "0.000069"),
    ),
    Case(
        id="A41",
        rule="usage may come long after the finish reason",
        sends=stream(ROLE, text("Hello"), STOP, usage(39, 4), between_s=0.3),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(39, 4, "0.000055"),
    ),
    # --- chunks ------------------------------------------------------------------------------
    Case(
        id="A37",
        rule="the last chunk may have a null delta or none",
        sends=stream(
            ROLE,
            text("Hello"),
            chunk({"index": 0, "delta": None, "finish_reason": "stop"}),
            chunk({"index": 0, "finish_reason": "stop"}),
            usage(18, 2),
        ),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(18, 2, "0.000026"),
    ),
    Case(
        id="A38",
        rule="a preamble without choices and a choice without a delta are no failure",
        sends=stream(
            {
                "choices": [],
                "created": 0,
                "id": "",
                "model": "",
                "object": "",
                "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}],
            },
            ROLE,
            text("Hello"),
            chunk({"index": 0, "finish_reason": None, "content_filter_results": {}}),
            STOP,
            usage(37, 2),
        ),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(37, 2, "0.000045"),
    ),
    Case(
        id="A39",
        rule="an event that is null is left out",
        sends=stream(ROLE, text("Hel"), b"data: null\n\n", text("lo"), STOP, usage(10, 2)),
        asks=STREAM,
        gets=Gets(text="Hello", done=True, lacks=("data: null",)),
        pays=vendors(10, 2, "0.000018"),
    ),
    Case(
        id="A40",
        rule="an empty finish reason is none",
        sends=stream(
            delta({"role": "assistant", "content": ""}, ""),
            text("Hel", ""),
            text("lo", ""),
            STOP,
            usage(28, 3),
        ),
        asks=STREAM,
        gets=Gets(text="Hello", done=True, finish="stop"),
        pays=vendors(28, 3, "0.00004"),
    ),
    Case(
        id="A50",
        rule="text may come with the finish reason",
        sends=stream(ROLE, text("Hello"), text(" world", "length"), usage(13, 3)),
        asks=STREAM,
        gets=Gets(text="Hello world", done=True, finish="length"),
        pays=vendors(13, 3, "0.000025"),
    ),
    # --- bodies ------------------------------------------------------------------------------
    Case(
        id="A44",
        rule="one event may have more than a megabyte",
        sends=stream(ROLE, text(LONG), STOP, usage(8, 300_000)),
        asks=STREAM,
        gets=Gets(text=LONG, done=True),
        pays=vendors(8, 300_000, "1.200008"),
    ),
    Case(
        id="A45",
        rule="a stream may be compressed, though we asked for none",
        sends=stream(
            *(ZIPPED[:2], ZIPPED[2:90], ZIPPED[90:]),
            done=False,
            headers=("Content-Encoding: gzip",),
        ),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(36, 2, "0.000044"),
    ),
    Case(
        id="A46",
        rule="an empty body is a failure",
        sends=whole(b"", framing="length"),
        gets=Gets(status=502, error="upstream_failed_mid_response"),
        pays=NOTHING,
    ),
    Case(
        id="A46-stream",
        rule="and so it is where a stream was asked for",
        sends=whole(b""),
        asks=STREAM,
        gets=Gets(status=502, error="upstream_failed_mid_response"),
        pays=NOTHING,
    ),
    # --- what we ask of a vendor ---------------------------------------------------------------
    Case(
        id="A47",
        rule="a vendor that knows no stream options is asked once more without",
        sends=(
            whole(
                {"error": {"message": "Unrecognized request argument: stream_options"}},
                status="400 Bad Request",
            ),
            stream(ROLE, text("Hello"), STOP),
        ),
        asks=STREAM,
        gets=SPOKEN,
        pays=estimated((1, 5)),
        calls=2,
        sent_lacks=("stream_options",),
    ),
    Case(
        id="A48",
        rule="stream options do not go out without a stream",
        sends=whole(completion(tokens=counts(14, 2))),
        asks=Ask(fields={"stream": False, "stream_options": {"include_usage": True}}),
        gets=Gets(text="Hello"),
        pays=vendors(14, 2, "0.000022"),
        sent_lacks=("stream_options",),
    ),
    # --- time --------------------------------------------------------------------------------
    Case(
        id="A49",
        rule="nothing holds a stream back, whatever encoding the client accepts",
        sends=stream(ROLE, text("a"), text("b"), text("c"), STOP, usage(9, 3), between_s=0.4),
        asks=Ask(fields={"stream": True}, headers=(*STREAM.headers, ("Accept-Encoding", "gzip"))),
        gets=Gets(kind=EVENTS, text="abc", done=True, headers={"x-accel-buffering": "no"}),
        pays=vendors(9, 3, "0.000021"),
        also=first_text_is_not_held_back,
    ),
    Case(
        id="A51",
        rule="a client hears comments while the vendor thinks",
        sends=stream(ROLE, text("Hello"), STOP, usage(50, 900), before_first_s=1.2),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(50, 900, "0.00365"),
        gateway="restless",
        also=heard_while_waiting,
    ),
    Case(
        id="A51-error",
        rule="after a comment an error is an event",
        sends=whole({"error": {"message": "no"}}, status="500 Broken", before_head_s=0.6),
        asks=STREAM,
        gets=Gets(text="", error="upstream_unavailable", done=False),
        pays=NOTHING,
        gateway="restless",
    ),
    Case(
        id="A51-body",
        rule="a body that is not streamed gets no comments",
        sends=whole({"error": {"message": "no"}}, status="500 Broken", before_head_s=0.6),
        gets=Gets(status=502, error="upstream_unavailable"),
        pays=NOTHING,
        gateway="restless",
    ),
    # --- other routes ------------------------------------------------------------------------
    Case(
        id="A17-routes",
        rule="no other vendor is asked once a client has text",
        sends=(stream(ROLE, text("Hel"), done=False, end="reset"), HELLO),
        asks=STREAM,
        gets=Gets(text="Hel", **CUT),
        pays=estimated((1, 4), outcome="partial"),
        vendor=({}, {}),
    ),
    Case(
        id="A46-routes",
        rule="the next vendor is asked where the first is not there",
        sends=hello(10, 2),
        asks=STREAM,
        gets=SPOKEN,
        pays=vendors(10, 2, "0.000018"),
        vendor=({"base_url": "http://127.0.0.1:1/v1"}, {}),
        also=both_attempts_are_kept,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_streaming(stage, case: Case) -> None:
    stage.play(case)
