import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.exchanges.masking import (
    DOTS,
    mask_body,
    mask_headers,
    mask_text,
    secret_spans,
)
from keys import secrets

OPENAI_KEY = "sk-abcdefghijklmnop1234"
OWN_KEY = "sk_live_7Kq2vXbN01_" + "a" * 27 + "bc4f1Q"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (f"Bearer {OWN_KEY}", f"Bearer sk_live_7Kq2vXbN01_{DOTS}4f1Q"),
        (f"bearer   {OWN_KEY} ", f"bearer sk_live_7Kq2vXbN01_{DOTS}4f1Q"),
        (OWN_KEY, f"sk_live_7Kq2vXbN01_{DOTS}4f1Q"),
        ("Bearer ::keyless::", "Bearer ::keyless::"),
        (f"Bearer {OPENAI_KEY}", f"Bearer {DOTS}"),
        ("Bearer sk_sys_root_example_000", f"Bearer {DOTS}"),
        ("Bearer  sk-live-SECRET123", f"Bearer {DOTS}"),
        ("Basic Q0FOQVJZ", f"Basic {DOTS}"),
        ("CANARY and more", DOTS),
        ("", ""),
    ],
)
def test_an_authorization_keeps_its_scheme_and_the_public_part_of_our_keys(value, stored) -> None:
    assert mask_headers([("authorization", value)]) == [["Authorization", stored]]
    assert mask_headers(mask_headers([("authorization", value)])) == [["Authorization", stored]]


def test_a_new_key_is_found_again_by_its_masked_form(settings) -> None:
    settings.KEY_PEPPERS = ["pepper"]
    secret = secrets.make("live")
    ((_, value),) = mask_headers([(b"x-api-key", secret.text.encode())])
    assert value == f"sk_live_{secret.public_id}_{DOTS}{secret.last_four}"


@pytest.mark.parametrize(
    "name",
    [
        "x-auth-token",
        "x-goog-api-key",
        "api-key",
        "cookie",
        "set-cookie",
        "proxy-authorization",
        "x-secret",
        "x-amz-security-token",
        "openai-organization",
        "unheard-of",
    ],
)
def test_only_headers_on_the_list_keep_their_value(name: str) -> None:
    assert mask_headers([(name, "CANARY-1")]) == [[name.title(), DOTS]]


def test_headers_that_explain_an_exchange_stay_as_they_are() -> None:
    kept = [
        (b"content-type", b"application/json"),
        (b"user-agent", b"Go-http-client/2.0"),
        (b"x-forwarded-for", b"203.0.113.38"),
        (b"x-stainless-lang", b"python"),
        (b"te", b"trailers"),
    ]
    assert mask_headers(kept) == [
        ["Content-Type", "application/json"],
        ["User-Agent", "Go-http-client/2.0"],
        ["X-Forwarded-For", "203.0.113.38"],
        ["X-Stainless-Lang", "python"],
        ["TE", "trailers"],
    ]


def test_a_key_in_a_harmless_header_is_masked() -> None:
    assert mask_headers([("user-agent", f"curl {OPENAI_KEY}")]) == [
        ["User-Agent", f"curl sk-{DOTS}"]
    ]


def test_what_a_vendor_is_sent_shows_nothing_of_its_credential() -> None:
    sent = [("authorization", f"Bearer {OWN_KEY}")]
    assert mask_headers(sent, keeps_own_keys=False) == [["Authorization", f"Bearer {DOTS}"]]
    keyless = [("authorization", "Bearer ::keyless::")]
    assert mask_headers(keyless, keeps_own_keys=False) == [["Authorization", "Bearer ::keyless::"]]


def test_headers_are_bounded_and_storable() -> None:
    assert len(mask_headers([("a", "b")] * 1_000)) == 100
    assert len(mask_headers([("host", "x" * 9_000)])[0][1]) == 2_000
    assert mask_headers([("ho\x00st", "a\x00b")]) == [["Ho\ufffdSt", DOTS]]
    assert mask_headers([("host", "a\x00b")]) == [["Host", "a\ufffdb"]]


@pytest.mark.parametrize(
    "secret",
    [
        OPENAI_KEY,
        "sk-proj-A1b2C3d4_E5f6-G7h8",
        "sk-ant-api03-abcdefghijklmnop",
        "sk_live_abcdefgh",
        "gsk_" + "a1" * 20,
        "xai-" + "b2" * 20,
        "hf_" + "c3" * 16,
        "AKIAIOSFODNN7EXAMPLE",
        "AIza" + "d4" * 17 + "x",
        "ya29." + "e5" * 20,
        "ghp_" + "f6" * 18,
        "github_pat_" + "g7" * 20,
        "glpat-abcdefghij0123456789",
        "xoxb-123456789012-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVPmB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        "Bearer abcdef1234567890",
    ],
)
@pytest.mark.parametrize("before", ["", "my key: ", "line\n", "tab\t", "é", "(", "="])
def test_known_shapes_of_keys_leave_a_body(secret: str, before: str) -> None:
    tail = secret[-8:]
    body = orjson.dumps({"messages": [{"role": "user", "content": f"{before}{secret}, thanks"}]})
    masked = mask_body(body)
    assert tail.encode() not in masked
    assert mask_body(masked) == masked
    text = orjson.loads(masked)["messages"][0]["content"]
    assert text.startswith(before)
    assert text.endswith(f"{DOTS}, thanks")


def test_our_own_key_in_a_body_keeps_its_public_part() -> None:
    body = orjson.dumps({"content": f"use {OWN_KEY}"})
    assert orjson.loads(mask_body(body)) == {"content": f"use sk_live_7Kq2vXbN01_{DOTS}4f1Q"}
    assert mask_body(mask_body(body)) == mask_body(body)


@pytest.mark.parametrize(
    "text",
    [
        "task-abcdefghijklmnopqrstuv",
        "Bearer of the ring and of bad news",
        "Bearer ::keyless::",
        "see https://example.com:8080/path and user@example.com",
        "sk-short",
        "the eyJ of a hurricane",
        "AKIA",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    body = orjson.dumps({"content": text})
    assert mask_body(body) == body


def test_members_that_are_named_like_secrets_lose_their_value() -> None:
    body = {
        "api_key": 'CANARY"1',
        "X-Api-Key": "CANARY-2",
        "password": "CANARY-3",
        "max_tokens": 5,
        "token": "kept",
        "arguments": orjson.dumps({"client_secret": "CANARY-4", "q": "kept"}).decode(),
    }
    masked = orjson.loads(mask_body(orjson.dumps(body)))
    assert masked == {
        **dict.fromkeys(["api_key", "X-Api-Key", "password"], DOTS),
        "max_tokens": 5,
        "token": "kept",
        "arguments": orjson.dumps({"client_secret": DOTS, "q": "kept"}).decode(),
    }


def test_a_private_key_is_masked_to_its_end() -> None:
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----"
    masked = orjson.loads(mask_body(orjson.dumps({"content": f"a {pem} b"})))["content"]
    assert masked == f"a -----BEGIN RSA PRIVATE KEY-----{DOTS}-----END RSA PRIVATE KEY----- b"


def test_a_password_in_an_address_is_masked() -> None:
    assert mask_text("postgresql://u:p%20w@db/x") == f"postgresql://u:{DOTS}@db/x"


def test_a_key_cannot_hide_in_escapes() -> None:
    hidden = b'{"content": "\\u0073k-\\u0061bcdefghijklmnop1234 \\\\u0073k \\u00e9"}'
    assert mask_body(hidden) == f'{{"content": "sk-{DOTS} \\\\u0073k \\u00e9"}}'.encode()


def test_spans_name_the_secrets() -> None:
    body = f"a {OPENAI_KEY} b {OPENAI_KEY}".encode()
    assert [body[start:end] for start, end in secret_spans(body)] == [OPENAI_KEY.encode()] * 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["api_key", "content", "password", "a"]) | st.text(), inner, max_size=4
        )
    ),
    max_leaves=20,
)
secret_texts = st.sampled_from([OPENAI_KEY, OWN_KEY, "Bearer abcdef123456789", 'api_key": "x'])


@given(json_values, secret_texts, st.text(max_size=5), st.booleans())
def test_valid_json_stays_valid_and_masking_is_done_once(value, secret, around, is_ascii) -> None:
    import json

    body = json.dumps([value, f"{around}{secret}{around}"], ensure_ascii=is_ascii)
    masked = mask_body(body.encode("utf-8", "surrogatepass"))
    json.loads(masked)
    assert mask_body(masked) == masked


@given(st.binary())
def test_any_bytes_can_be_masked(body: bytes) -> None:
    mask_body(body)


@pytest.mark.parametrize(
    "piece",
    [b"a", b"eyJ", b'"api_key": ', b"://a:", b"sk-", b"bearer ", b"-----BEGIN PRIVATE KEY-----"],
)
def test_no_input_makes_a_megabyte_slow(piece: bytes) -> None:
    body = piece * (1_000_000 // len(piece))
    start = time.process_time()
    mask_body(body)
    assert time.process_time() - start < 2
