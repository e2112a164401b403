import orjson
import pytest

from gateway.exchanges.diff import Row, request_diff, response_diff
from gateway.exchanges.legs import legs_of
from tests.gateway.exchanges.made import MODEL, REQUEST, VENDOR_MODEL, Maker, a_stream, record


@pytest.fixture
def maker(world) -> Maker:
    return Maker(world.tenant())


def a_view(maker: Maker, **stored):
    exchange = maker.settled()
    return legs_of(exchange, record(exchange, **{"answer": a_stream("hi"), **stored}))


def test_the_request_shows_the_two_changes_with_their_reasons(maker) -> None:
    view = a_view(maker)
    diff = request_diff(view, view.attempts[0])
    body, headers = diff.groups
    assert (diff.start, diff.end) == (1, 2)
    assert body.title == "Body, 2 changes; all else passed untouched"
    assert body.rows == (
        Row("", "{"),
        Row("", '  "messages": [{"content":"benchmark","role":"user"}],'),
        Row("-", '  "model": "', MODEL, '",'),
        Row("+", '  "model": "', VENDOR_MODEL, '",', "the vendor's own name for the model"),
        Row("", '  "stream": true,'),
        Row(
            "+",
            '  "',
            "stream_options",
            '": {"include_usage": true}',
            "so that the vendor reports usage; dropped from ④, you did not ask for it",
        ),
        Row("", "}"),
    )
    assert headers.title == (
        "Headers, 3 changed, 3 removed (Accept-Encoding, Via, X-Forwarded-For)"
    )
    assert [row.text for row in headers.rows] == [
        "Authorization: Bearer ••••",
        "Authorization: Bearer ::keyless::",
        "User-Agent: Go-http-client/2.0",
        "User-Agent: Farthing",
        "Host: api.example.test:5201",
        "Host: 127.0.0.1:1234",
    ]
    assert headers.rows[1].reason == "the vendor's credential, never shown"


def test_long_members_are_one_line(maker) -> None:
    request = orjson.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "x" * 99}] * 7,
            "max_tokens": 4096,
            "temperature": 0.2,
            "tools": [{"type": "function", "function": {"name": "x" * 99}}] * 2,
            "api_key": "secret",
            "stop": "y" * 200,
        }
    )
    view = a_view(maker, request=request)
    (body, _) = request_diff(view, view.attempts[0]).groups
    lines = [row.text for row in body.rows]
    assert '  "messages": [ 7 messages ], "max_tokens": 4096, "temperature": 0.2,' in lines
    assert '  "tools": [ 2 tools ],' in lines
    (dropped,) = [row for row in body.rows if row.word == "api_key"]
    assert (dropped.sign, dropped.reason) == ("-", "steers other gateways, never passed on")
    assert all(len(line) < 100 for line in lines)


def test_the_answer_shows_id_model_and_withheld_usage(maker) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    view = a_view(maker, answer=a_stream("hi", usage=usage))
    body, headers = response_diff(view, view.attempts[0]).groups
    changed = [(row.sign, row.word, row.reason) for row in body.rows if row.sign]
    assert changed == [
        ("-", "chatcmpl-bench", None),
        ("+", view.client_response.body["id"], "the exchange's own id"),
        ("-", "bench", None),
        ("+", MODEL, "the name that you asked for"),
        ("-", "usage", "Farthing asked for it, you did not"),
    ]
    assert headers.title == "Headers, 1 added"
    assert [row.text for row in headers.rows] == ["X-Request-Id: req_1"]


def test_a_change_of_form_is_said(maker) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    answer = orjson.dumps(
        {"id": "a", "model": "b", "object": "chat.completion", "choices": [choice]}
    )
    view = a_view(maker, answer=answer)
    titles = [group.title for group in response_diff(view, view.attempts[0]).groups]
    assert "Form, one JSON body made into a well-formed stream" in titles
    whole = orjson.dumps({**orjson.loads(REQUEST), "stream": False})
    view = a_view(maker, request=whole)
    titles = [group.title for group in response_diff(view, view.attempts[0]).groups]
    assert "Form, a stream put together into one JSON body" in titles


def test_an_error_in_place_of_an_answer_is_said(maker) -> None:
    error = b'{"error":{"message":"x","type":"upstream_error","param":null,"code":"y"}}'
    view = a_view(maker, answer=b'{"detail": "busy"}', error=error)
    titles = [group.title for group in response_diff(view, view.attempts[0]).groups]
    assert titles[0] == "Body, replaced by an error in OpenAI's shape"


def test_without_bodies_only_headers_are_compared(maker) -> None:
    view = a_view(maker, policy="summaries")
    assert len(request_diff(view, view.attempts[0]).groups) == 1
    assert len(response_diff(view, view.attempts[0]).groups) == 1
