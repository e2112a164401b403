"""What a failed attempt means for the client, the next route and the money."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.relay.failures import (
    BLAME,
    MAX_CLIENT_MESSAGE_CHARS,
    MAX_RETRY_AFTER_S,
    MAX_STAFF_MESSAGE_CHARS,
    Blame,
    Fault,
    VendorError,
    clean,
    failure_of_fault,
    failure_of_status,
    find_error,
    read_error,
    retry_after,
    status_of,
    unreadable,
)

HIDDEN = {"vendor-m": "alias-m", "acme": "[provider]", "": "never"}


def failed(status: int | None, message: str = "", *, wait: int | None = None, **said):
    return failure_of_status(
        status, VendorError(message=message, **said), retry_after_s=wait, hidden=HIDDEN
    )


@pytest.mark.parametrize(
    ("status", "to_client", "code", "may_try_next", "should_retry"),
    [
        (400, 400, "invalid_value", False, False),
        (413, 413, "invalid_value", False, False),
        (422, 422, "invalid_value", False, False),
        (401, 502, "upstream_credential_rejected", True, False),
        (402, 502, "upstream_credential_rejected", True, False),
        (403, 502, "upstream_credential_rejected", True, False),
        (404, 502, "upstream_unavailable", True, True),
        (408, 504, "upstream_timeout", True, True),
        (429, 429, "upstream_rate_limited", True, True),
        (500, 502, "upstream_unavailable", True, True),
        (502, 502, "upstream_unavailable", True, True),
        (503, 503, "upstream_unavailable", True, True),
        (504, 504, "upstream_timeout", True, True),
        (529, 503, "upstream_unavailable", True, True),
        (301, 502, "upstream_unavailable", True, True),
    ],
)
def test_a_vendors_status_is_mapped(status, to_client, code, may_try_next, should_retry):
    failure = failed(status, "words")
    assert (failure.error.status, failure.error.code) == (to_client, code)
    assert failure.may_try_next is may_try_next
    assert failure.error.should_retry is should_retry
    assert failure.blame is (Blame.ROUTE if status >= 500 else Blame.NOBODY)
    assert (failure.vendor_status, failure.vendor_message) == (status, "words")
    assert not failure.may_have_billed


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (400, "API key not valid. Please pass a valid API key.", {}),
        (400, "Incorrect API key provided: sk-abc", {}),
        (429, "You exceeded your current quota, please check your plan and billing details.", {}),
        (429, "", {"code": "insufficient_quota"}),
        (400, "Insufficient Balance", {}),
        (400, "Your credit balance is too low to access the API.", {}),
        (500, "", {"type": "authentication_error"}),
    ],
)
def test_a_refusal_of_our_account_never_looks_like_the_clients_fault(status, message, said):
    failure = failed(status, message, **said)
    assert failure.error.code == "upstream_credential_rejected"
    assert failure.error.status == 502
    assert message not in failure.error.message or not message


@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_is_passed_on(status):
    assert failed(status, wait=30).error.retry_after_s == 30
    assert failed(status, wait=30).retry_after_s == 30
    assert failed(status).error.retry_after_s == 2


def test_a_refusal_is_told_in_clean_words_with_code_and_param():
    failure = failed(
        400,
        "vendor-m at https://api.acme.example/v1 (10.0.0.7:8000) refused Bearer abc.def "
        "for sk-12345678: <b>context too long</b>\x00",
        code="context_length_exceeded",
        param="messages[0].content",
    )
    assert failure.error.message == (
        "The model refused the request: alias-m at [address] ([address]) refused [key] "
        "for [key]: context too long. You were not charged."
    )
    assert failure.error.code == "context_length_exceeded"
    assert failure.error.param == "messages[0].content"
    assert "sk-12345678" in failure.vendor_message


@pytest.mark.parametrize("code", ["400", "has space", "x" * 65, ""])
def test_a_code_that_says_nothing_is_not_passed_on(code):
    assert failed(400, "m", code=code, param="bad param").error.code == "invalid_value"
    assert failed(400, "m", code=code, param="bad param").error.param is None


def test_a_refused_option_is_seen():
    assert failed(400, "Unrecognized request argument: stream_options").rejects_stream_options
    assert failed(422, "include_usage: extra fields not permitted").rejects_stream_options
    assert not failed(500, "stream_options").rejects_stream_options
    assert not failed(400, "other").rejects_stream_options


@pytest.mark.parametrize(
    ("fault", "sent", "status", "code", "may_try_next"),
    [
        (Fault.CONNECT_FAILED, False, 503, "upstream_unavailable", True),
        (Fault.CONNECT_FAILED, True, 503, "upstream_unavailable", True),
        (Fault.CONNECT_TIMEOUT, False, 504, "upstream_timeout", True),
        (Fault.NO_CAPACITY, False, 503, "upstream_unavailable", True),
        (Fault.FIRST_BYTE_TIMEOUT, True, 504, "upstream_timeout", False),
        (Fault.TOTAL_TIMEOUT, False, 504, "upstream_timeout", True),
        (Fault.IDLE_TIMEOUT, True, 504, "upstream_timeout", False),
        (Fault.CONNECTION_LOST, False, 503, "upstream_unavailable", True),
        (Fault.CONNECTION_LOST, True, 502, "upstream_failed_mid_response", False),
        (Fault.PROTOCOL_ERROR, True, 502, "upstream_failed_mid_response", False),
        (Fault.TOO_LARGE, True, 502, "upstream_failed_mid_response", False),
    ],
)
def test_a_fault_is_tried_again_only_where_nothing_can_be_billed(
    fault, sent, status, code, may_try_next
):
    failure = failure_of_fault(fault, request_sent=sent)
    assert (failure.error.status, failure.error.code) == (status, code)
    assert failure.may_try_next is may_try_next
    assert failure.may_have_billed is not may_try_next
    assert failure.error.should_retry is may_try_next
    assert failure.blame is BLAME.get(fault, Blame.UNKNOWN)


def test_what_a_client_can_cause_says_nothing_of_a_route() -> None:
    assert failed(None, "no words").blame is Blame.UNKNOWN
    assert unreadable(200, "no choices").blame is Blame.UNKNOWN
    for fault in (Fault.TOO_LARGE, Fault.TOTAL_TIMEOUT, Fault.UNREADABLE):
        assert failure_of_fault(fault, request_sent=True).blame is Blame.UNKNOWN


@pytest.mark.parametrize("place", ["code", "param", "message"])
def test_no_part_of_a_refusal_names_the_vendor(place):
    said = VendorError(**{"message": "no", place: "acme-42"})
    error = failure_of_status(422, said, retry_after_s=None, hidden=HIDDEN).error
    assert b"acme" not in error.body()
    assert error.code == "invalid_value"


def test_what_staff_read_can_be_stored():
    failure = failed(500, "a\x00b\ud83d")
    assert failure.vendor_message == "a\ufffdb\ufffd"


def test_an_unreadable_answer_may_have_cost():
    failure = unreadable(200, "x" * 10_000)
    assert failure.may_have_billed
    assert not failure.may_try_next
    assert len(failure.vendor_message) == MAX_STAFF_MESSAGE_CHARS


class TestReading:
    @pytest.mark.parametrize(
        ("message", "name", "expected"),
        [
            ({"error": "text"}, b"", VendorError(message="text")),
            (
                {"error": {"message": "m", "code": 429, "type": "t", "param": "p"}},
                b"",
                VendorError(message="m", status=429, type="t", param="p"),
            ),
            ({"error": {"message": "m", "code": "503"}}, b"", VendorError("m", 503, "503")),
            ({"error": {"msg": "m", "code": "c"}}, b"", VendorError("m", None, "c")),
            ({"error": {"error": {"message": "m"}}}, b"", VendorError("m")),
            ({"error": {"message": 5, "code": True, "status": 99}}, b"", VendorError()),
            ({"error": [1]}, b"", VendorError()),
            (
                {"error": {"detail": [{"loc": ["body", "n"], "msg": "too many"}, 5]}},
                b"",
                VendorError("['body', 'n'] too many"),
            ),
            ({"error": {"detail": {"a": 1}}}, b"", VendorError()),
            ({"object": "error", "message": "m"}, b"", VendorError("m")),
            ({"type": "error", "error": {"type": "x"}}, b"", VendorError(type="x")),
            ({"message": "m"}, b"error", VendorError("m")),
            ({"message": "m"}, b"", None),
            ({"error": None}, b"", None),
            ({"error": {}}, b"", None),
            ({"error": ""}, b"message", None),
            ({"error": ["text", 1]}, b"", VendorError("text")),
            ({"detail": "m"}, b"", VendorError("m")),
            ({"detail": "m", "choices": []}, b"", None),
            ({"errors": [{"message": "m"}, "n"]}, b"", VendorError("m; n")),
            ({"success": False, "errors": [{"message": "m"}]}, b"", VendorError("m")),
            ({"success": False, "message": "m"}, b"", VendorError("m")),
            ({"code": 503, "message": "m"}, b"", VendorError("m", 503)),
            ({"code": 200, "message": "m"}, b"", None),
            ({"error_code": 17, "error_msg": "m"}, b"", VendorError("m")),
            ({"base_resp": {"status_code": 1004, "status_msg": "m"}}, b"", VendorError("m")),
            ({"base_resp": {"status_code": 0}}, b"", None),
            ({"choices": [1, {"error": {"message": "m"}}]}, b"", VendorError("m")),
            ({"choices": [{"finish_reason": "error"}]}, b"", VendorError()),
            ({"choices": [{"finish_reason": "stop", "error": None}]}, b"", None),
        ],
    )
    def test_an_error_is_found_in_every_dialect(self, message, name, expected):
        assert find_error(message, name) == expected

    @pytest.mark.parametrize(
        ("said", "status"),
        [
            (VendorError(status=418), 418),
            (VendorError(type="overloaded_error"), 503),
            (VendorError(code="Rate_Limit_Exceeded"), 429),
            (VendorError(type="BadRequestError"), 400),
            (VendorError(type="who knows"), None),
            (VendorError(), None),
        ],
    )
    def test_the_status_an_error_stands_for(self, said, status):
        assert status_of(said) == status

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({"retry-after": "30"}, 30),
            ({"retry-after": " 0 "}, 0),
            ({"retry-after": "9" * 30}, MAX_RETRY_AFTER_S),
            ({"retry-after": "-5"}, None),
            ({"retry-after": "soon"}, None),
            ({}, None),
            (
                {
                    "retry-after": "Tue, 01 Dec 2026 10:01:00 GMT",
                    "date": "Tue, 01 Dec 2026 10:00:00 GMT",
                },
                60,
            ),
            (
                {
                    "retry-after": "Tue, 01 Dec 2026 09:00:00 GMT",
                    "date": "Tue, 01 Dec 2026 10:00:00 GMT",
                },
                0,
            ),
            ({"retry-after": "Tue, 01 Dec 2026 10:01:00 GMT"}, None),
            (
                {
                    "retry-after": "Tue, 01 Dec 2026 10:01:00 -0000",
                    "date": "Tue, 01 Dec 2026 10:00:00 GMT",
                },
                None,
            ),
        ],
    )
    def test_the_wait_is_read(self, headers, seconds):
        assert retry_after(headers) == seconds


class TestClean:
    @pytest.mark.parametrize(
        ("text", "cleaned"),
        [
            ("see http://user:pw@10.1.2.3/x?key=1 now", "see [address] now"),
            ("ACME says Vendor-M", "[provider] says alias-m"),
            ("key sk-proj-AbCd1234 bad", "key [key] bad"),
            ("Authorization: Bearer abc.def-ghi", "Authorization: [key]"),
            ("AIzaSyA1234567890", "[key]"),
            ("a\r\nb\tc\x00d", "a b c d"),
            ("<p>no</p>", "no"),
            ("the token-limit and key_name", "the token-limit and key_name"),
            ("token_abc12345", "[key]"),
            ("org-AbCdEf123456 and proj_0123456789a", "[key] and [key]"),
            ("a proj_description, org-wide", "a proj_description, org-wide"),
            ("dial tcp llm-7.Internal.example:8443: refused", "dial tcp [address]: refused"),
            ("at e.g. 10:30, version 1.2", "at e.g. 10:30, version 1.2"),
            ("acmeism", "acmeism"),
            ("tasks like risk-free ones", "tasks like risk-free ones"),
        ],
    )
    def test_nothing_private_is_left(self, text, cleaned):
        assert clean(text, HIDDEN) == cleaned

    @pytest.mark.parametrize(
        "text",
        [
            "the header was Authorization:vk-canary-0001",
            "{'headers': {'x-key': 'Xvk-canary-0001x'}}",
            "VK-CANARY-0001 is not known",
            "<b>vk-canary-0001</b>",
            "vk-canary-0001" * 200,
            "word " * 398 + "vk-canary-0001",
            "<i>" * 663 + " vk-canary-0001",
        ],
    )
    def test_our_credential_is_left_nowhere(self, text):
        assert "canary" not in clean(text, {"vk-canary-0001": "[provider]"}).lower()
        assert "vk-c" not in clean(text, {"vk-canary-0001": "[provider]"}).lower()

    def test_it_is_short(self):
        cleaned = clean("word " * 1000, {})
        assert len(cleaned) == MAX_CLIENT_MESSAGE_CHARS
        assert cleaned.endswith("…")

    @given(st.text())
    def test_any_text_can_be_cleaned(self, text):
        assert len(clean(text, HIDDEN)) <= MAX_CLIENT_MESSAGE_CHARS


@given(
    st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=3)
    | st.dictionaries(
        st.sampled_from(["message", "code", "type", "error", "status"]), st.text() | st.integers()
    )
)
def test_any_error_value_can_be_read(error):
    failure = failure_of_status(500, read_error(error), retry_after_s=None, hidden={})
    assert failure.error.status in {502, 503, 504}
