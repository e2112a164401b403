"""What a client may send, what it may not, and what the vendor gets of it."""

import gzip
import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import ApiError
from gateway.relay.request import MAX_DEPTH, ROUTING_FIELDS, read_request, vendor_body

MESSAGES = '"messages":[{"role":"user","content":"hi"}]'


def raw(*members: str) -> bytes:
    return ("{" + ",".join(('"model":"alias-m"', MESSAGES, *members)) + "}").encode()


def refused(body: bytes, **transport: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_request(body, **transport)
    return caught.value


def sent(body: bytes, *, include_usage: bool = True) -> dict:
    text = vendor_body(read_request(body), vendor_model="vendor-m", include_usage=include_usage)
    return json.loads(text)


class TestAccepted:
    def test_the_least_request(self):
        request = read_request(raw())
        assert (request.model, request.stream, request.include_usage) == ("alias-m", False, False)
        assert (request.max_output_tokens, request.n, request.dropped) == (None, 1, ())

    def test_everything_that_is_asked_for_is_read(self):
        body = raw('"stream":true,"stream_options":{"include_usage":true},"n":3,"max_tokens":7')
        request = read_request(body)
        assert (request.stream, request.include_usage) == (True, True)
        assert (request.max_output_tokens, request.n) == (7, 3)

    def test_the_larger_of_two_bounds_counts(self):
        request = read_request(raw('"max_tokens":7,"max_completion_tokens":90'))
        assert request.max_output_tokens == 90

    def test_null_is_as_good_as_left_out(self):
        request = read_request(
            raw('"stream":null,"n":null,"max_tokens":null,"stream_options":null')
        )
        assert (request.stream, request.n, request.max_output_tokens) == (False, 1, None)

    def test_unknown_fields_and_zero_like_values_reach_the_vendor_in_order(self):
        members = (
            '"temperature":0,"top_p":0.0,"seed":0,"stop":[],"logit_bias":{},'
            '"parallel_tool_calls":false,"reasoning":{"effort":"low"},'
            '"x_vendor":{"a":[1,null,{"b":2}],"z":"","y":18446744073709551615}'
        )
        body = raw(members)
        assert vendor_body(
            read_request(body), vendor_model="vendor-m", include_usage=True
        ) == body.replace(b"alias-m", b"vendor-m")

    def test_any_form_of_content_passes(self):
        messages = [
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "x_new"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
            {"role": "tool", "content": [], "name": "f", "cache_control": {"type": "x"}},
        ]
        body = json.dumps({"model": "alias-m", "messages": messages}).encode()
        assert sent(body)["messages"] == messages

    def test_nul_in_texts_passes_unchanged(self):
        body = raw(r'"user":"u\u0000"')
        assert rb"u\u0000" in vendor_body(
            read_request(body), vendor_model="vendor-m", include_usage=True
        )

    def test_escapes_and_spaces_change_nothing(self):
        body = json.dumps({"model": "alias-m", "messages": [{"content": 'é"\\ 😀'}]}).encode()
        assert sent(body)["messages"] == [{"content": 'é"\\ 😀'}]

    def test_a_byte_order_mark_is_skipped(self):
        assert read_request(b"\xef\xbb\xbf" + raw()).model == "alias-m"

    @pytest.mark.parametrize(
        "content_type",
        [
            "",
            "application/json",
            "text/plain",
            "application/json; charset=utf-8",
            'application/json; Charset="UTF-8"',
            "application/json;charset=us-ascii",
        ],
    )
    def test_utf8_by_any_name(self, content_type):
        assert read_request(raw(), content_type=content_type).model == "alias-m"


class TestVendorBody:
    def test_usage_is_asked_for_in_streams(self):
        assert sent(raw('"stream":true'))["stream_options"] == {"include_usage": True}

    def test_other_stream_options_are_kept(self):
        body = raw('"stream":true,"stream_options":{"x":1,"include_usage":false}')
        assert sent(body)["stream_options"] == {"x": 1, "include_usage": True}
        assert not read_request(body).include_usage

    def test_a_vendor_that_refuses_the_option_does_not_get_it(self):
        body = raw('"stream":true,"stream_options":{"include_usage":true}')
        assert "stream_options" not in sent(body, include_usage=False)
        body = raw('"stream":true,"stream_options":{"include_usage":true,"x":1}')
        assert sent(body, include_usage=False)["stream_options"] == {"x": 1}

    def test_stream_options_without_a_stream_are_dropped(self):
        body = raw('"stream":false,"stream_options":{"include_usage":true}')
        assert "stream_options" not in sent(body)
        assert not read_request(body).include_usage

    def test_routing_fields_never_reach_the_vendor(self):
        members = ",".join(f'"{name}":"http://169.254.169.254/"' for name in ROUTING_FIELDS)
        request = read_request(raw(members))
        assert request.dropped == tuple(sorted(ROUTING_FIELDS))
        assert set(sent(raw(members))) == {"model", "messages"}

    def test_the_request_itself_is_not_changed(self):
        request = read_request(raw('"stream":true'))
        before = json.dumps(request.payload)
        vendor_body(request, vendor_model="vendor-m", include_usage=True)
        assert json.dumps(request.payload) == before


class TestRefused:
    @pytest.mark.parametrize(
        ("body", "param", "code"),
        [
            (b"", "body", "invalid_json"),
            (b"{", "body", "invalid_json"),
            (b"null", "body", "invalid_type"),
            (b"42", "body", "invalid_type"),
            (b'"x"', "body", "invalid_type"),
            (b"[1,2,3]", "body", "invalid_type"),
            (b'{"model":"\xff"}', "body", "invalid_json"),
            (b"{}", "model", "missing_required_parameter"),
            (b'{"model":null}', "model", "missing_required_parameter"),
            (b'{"model":["a"],"messages":[]}', "model", "invalid_type"),
            (b'{"model":"","messages":[{}]}', "model", "invalid_value"),
            (b'{"model":" ","messages":[{}]}', "model", "invalid_value"),
            (b'{"model":"a\\u0000","messages":[{}]}', "model", "invalid_value"),
            (b'{"model":"a\\r\\nx: y","messages":[{}]}', "model", "invalid_value"),
            (b'{"model":"%s","messages":[{}]}' % (b"m" * 257), "model", "invalid_value"),
            (b'{"model":"a"}', "messages", "missing_required_parameter"),
            (b'{"model":"a","messages":null}', "messages", "missing_required_parameter"),
            (b'{"model":"a","messages":"hi"}', "messages", "invalid_type"),
            (b'{"model":"a","messages":[]}', "messages", "invalid_value"),
            (b'{"model":"a","messages":["hi"]}', "messages[0]", "invalid_type"),
            (raw('"stream":"true"'), "stream", "invalid_type"),
            (raw('"stream":"false"'), "stream", "invalid_type"),
            (raw('"stream":1'), "stream", "invalid_type"),
            (raw('"stream_options":[1]'), "stream_options", "invalid_type"),
            (
                raw('"stream_options":{"include_usage":1}'),
                "stream_options.include_usage",
                "invalid_type",
            ),
            (raw('"n":0'), "n", "invalid_value"),
            (raw('"n":129'), "n", "invalid_value"),
            (raw('"n":true'), "n", "invalid_type"),
            (raw('"n":1.5'), "n", "invalid_type"),
            (raw('"max_tokens":-1'), "max_tokens", "invalid_value"),
            (raw('"max_tokens":"7"'), "max_tokens", "invalid_type"),
            (raw('"max_completion_tokens":2147483648'), "max_completion_tokens", "invalid_value"),
            (raw('"temperature":NaN'), "body", "invalid_json"),
            (raw('"x":Infinity'), "body", "invalid_json"),
            (raw('"x":1e400'), "body", "invalid_json"),
            (raw('"x":1e-400'), "body", "invalid_number"),
            (raw('"x":18446744073709551616'), "body", "invalid_number"),
            (raw('"x":-9223372036854775809'), "body", "invalid_number"),
            (raw('"x":' + "9" * 300), "body", "invalid_number"),
            (raw('"x":' + "9" * 5000), "body", "invalid_json"),
            (raw(r'"x":"hi \ud83d there"'), "body", "invalid_json"),
        ],
    )
    def test_what_is_wrong_is_named(self, body, param, code):
        error = refused(body)
        assert (error.status, error.param, error.code) == (400, param, code)
        assert not error.should_retry

    @pytest.mark.parametrize(
        "members",
        [
            '"model":"alias-forbidden"',
            r'"mod\u0065l":"alias-forbidden"',
            r'"\u006dodel" : "alias-m"',
            '"messages":[{}]',
            '"stream":true,"stream":false',
            '"max_tokens":1,"max_tokens":2',
            '"x":{"a":1,"b":{"c":1,"c":1}}',
            '"x":{"a":{},"a":{}}',
            '"x":"\\u0022","y":1,"y":1',
        ],
    )
    def test_a_key_twice_is_refused_however_it_is_written(self, members):
        error = refused(raw(members))
        assert (error.status, error.code) == (400, "duplicate_key")
        assert error.param

    def test_an_escaped_quote_is_no_duplicate(self):
        assert read_request(raw('"x":"\\u0022\\u0022"')).payload["x"] == '""'

    @pytest.mark.parametrize("levels", [MAX_DEPTH, 300, 20_000])
    def test_deep_nesting_is_refused(self, levels):
        for pair in ("[]", '{"a":}'):
            text = pair[:-1] * levels + ("1" if ":" in pair else "") + pair[-1] * levels
            error = refused(raw(f'"x":{text}'))
            assert error.status == 400
            assert error.code in {"nested_too_deeply", "invalid_json"}

    def test_wide_is_not_deep(self):
        assert len(read_request(raw('"x":[' + ",".join(["[[]]"] * 500) + "]")).payload["x"]) == 500

    @pytest.mark.parametrize(
        "content_type",
        [
            "application/json; charset=does-not-exist",
            "application/json; charset=utf-16",
            "application/json; charset=",
            "application/json; charset",
        ],
    )
    def test_another_charset_is_refused(self, content_type):
        error = refused(raw(), content_type=content_type)
        assert (error.status, error.code) == (400, "invalid_charset")

    def test_too_large_is_a_413(self):
        with pytest.raises(ApiError) as caught:
            read_request(raw(), max_body_bytes=10)
        assert caught.value.status == 413
        assert caught.value.param == "body"

    def test_an_error_shows_nothing_of_the_body(self):
        assert "secret" not in refused(b'{"api":"secret').message
        assert refused(raw('"a\\u0000b":1,"a\\u0000b":2')).param == "ab"


class TestCompressed:
    def test_gzip_and_deflate_are_undone(self):
        for encoding, packed in (
            ("gzip", gzip.compress(raw())),
            ("GZIP", gzip.compress(raw())),
            ("deflate", zlib.compress(raw())),
            ("identity", raw()),
        ):
            assert read_request(packed, content_encoding=encoding).model == "alias-m"

    def test_a_bomb_is_a_413(self):
        packed = gzip.compress(b" " * 10_000_000)
        with pytest.raises(ApiError) as caught:
            read_request(packed, content_encoding="gzip", max_body_bytes=1_000_000)
        assert caught.value.status == 413

    @pytest.mark.parametrize(
        ("packed", "encoding"),
        [
            (b"junk", "gzip"),
            (gzip.compress(raw())[:-9], "gzip"),
            (gzip.compress(raw()) + b"junk", "gzip"),
            (raw(), "br"),
            (gzip.compress(raw()), "gzip, gzip"),
        ],
        ids=["no gzip", "cut", "more behind it", "unknown", "twice"],
    )
    def test_damaged_or_unknown_encodings_are_refused(self, packed, encoding):
        error = refused(packed, content_encoding=encoding)
        assert (error.status, error.code) == (400, "invalid_content_encoding")


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=10,
)


@given(extra=JSON_VALUES, ascii_only=st.booleans(), spaces=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_legal_value_reaches_the_vendor_as_it_is(extra, ascii_only, spaces):
    payload = {"model": "alias-m", "x": extra, "messages": [{"content": extra}]}
    separators = None if spaces else (",", ":")
    body = json.dumps(payload, ensure_ascii=ascii_only, separators=separators).encode()
    assert sent(body) == {**payload, "model": "vendor-m"}


@given(body=st.binary(max_size=60) | st.builds(raw, st.text(max_size=30)))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_request_or_a_400(body):
    try:
        text = vendor_body(read_request(body), vendor_model="v", include_usage=True)
    except ApiError as error:
        outcome = (error.status, bool(error.param))
    else:
        outcome = json.loads(text)["model"]
    assert outcome in {"v", (400, True)}
