import json

import pytest

from gateway.relay.body import (
    client_body,
    flaw_of,
    json_or_none,
    lines_of,
    said_by,
    staff_text,
    whole,
)
from gateway.relay.failures import VendorError
from gateway.relay.stream import Wish
from tests.gateway.relay.playbook import body, chunk, completion, counts, event, ours

WISH = Wish("chatcmpl-ours", "alias-m", wants_usage=False, n=1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'{"a":1}\n\ndata: [DONE]', {"a": 1}),
        (b'{"a":NaN}', {"a": None}),
        (b"null", None),
        (b"", None),
        (b"<html>", None),
        (b"[DONE]", None),
    ],
)
def test_one_body_is_decoded(text, value):
    assert json_or_none(text) == value


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        (completion(), None),
        (None, "text"),
        ([], "text"),
        ({}, "no choices: text"),
        ({"choices": []}, "no choices: text"),
        ({"choices": [1]}, "malformed choices: text"),
        ({"choices": [{"message": "Hello"}]}, "malformed choices: text"),
        ({"choices": [{"message": None}]}, None),
    ],
)
def test_what_is_no_completion_is_said(value, flaw):
    assert flaw_of(value, b"text") == flaw


def test_nothing_at_all_is_said_in_words():
    assert flaw_of(None, b"") == "empty answer"


def test_a_chunk_is_made_whole_and_a_completion_left_alone():
    sent = completion()
    assert whole(sent) is sent
    assert whole(chunk("Hello", finish="stop")) == completion()
    older = completion(choices=[{"index": 0, "text": "Hello", "finish_reason": "stop"}])
    assert whole(older) == completion()


@pytest.mark.parametrize(
    ("value", "text", "lines"),
    [
        ([{"a": 1}, {"b": 2}], b"", b'{"a":1}\n{"b":2}\n\n\n'),
        (None, b'{"a":1}\n{"b":2}', b'{"a":1}\n{"b":2}\n\n\n'),
        (None, b'{"a":1}{"b":', b'{"a":1}\n{"b":\n\n'),
        (None, b'{"a":1', None),
        (None, b'{\n"a":1', None),
        (None, b"<html>\n</html>", None),
        ({"a": 1}, b'{"a":1}', None),
    ],
)
def test_lines_of_objects_are_known_from_a_body(value, text, lines):
    assert lines_of(value, text) == lines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (body({"error": {"message": "m", "code": 400}}), VendorError("m", 400)),
        (body({"message": "m"}), VendorError("m")),
        (body([{"error": "m"}]), VendorError("m")),
        (event({"error": "m"}).strip(), VendorError("m")),
        (b"plain \xff words", VendorError("plain \ufffd words")),
        (b"", VendorError()),
        (b"[]", VendorError("[]")),
    ],
)
def test_an_error_body_says_what_it_says(text, said):
    assert said_by(text)[0] == said


class TestClientBody:
    def test_the_vendors_bytes_are_kept(self):
        text = b'{ "id":"v", "model":"m", "choices":[{"message":{},"x":1.50}] }'
        out = client_body(json.loads(text), text, WISH, None)
        assert out == text.replace(b'"v"', b'"chatcmpl-ours"').replace(b'"m"', b'"alias-m"')

    def test_names_that_are_missing_are_added(self):
        sent = {"choices": [{"message": {}}]}
        assert json.loads(client_body(sent, body(sent), WISH, None)) == ours(sent)

    def test_an_empty_finish_reason_is_null(self):
        sent = completion(choices=[{"message": {}, "finish_reason": ""}])
        out = json.loads(client_body(sent, body(sent), WISH, None))
        assert out["choices"][0]["finish_reason"] is None

    def test_usage_passes_unless_it_is_replaced(self):
        sent = completion(usage=counts(1, 2))
        assert json.loads(client_body(sent, body(sent), WISH, None))["usage"] == counts(1, 2)
        assert json.loads(client_body(sent, body(sent), WISH, counts(3, 4)))["usage"] == counts(
            3, 4
        )


def test_staff_read_no_more_than_a_bound():
    assert len(staff_text(b"x" * 100_000)) == 64 * 1024
