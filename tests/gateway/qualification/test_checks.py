"""Every check against a real vendor: benchecho does right under one name, wrong under another."""

from dataclasses import replace

import pytest

from gateway.benchecho.app import Benchecho
from gateway.benchecho.stats import Stats
from gateway.models import KEYLESS, Vendor
from gateway.qualification import leaving
from gateway.qualification.bounds import Bounds
from gateway.qualification.checks import CHECKS, Subject
from gateway.qualification.run import check_vendor
from gateway.runtime.snapshot import access_of
from tests.gateway.qualification.conftest import Clever, Stubborn, served

QUICK = Bounds(call_s=2.0, run_s=10.0, stop_s=0.5, first_token_ms=150)
LONG = "echo-chunks-300-5"


def access(base_url: str):
    return access_of(Vendor(pk=1, name="acme", base_url=base_url, credential=KEYLESS))


def found(base_url: str, check: str, model: str = "echo", bounds: Bounds = QUICK, **subject):
    """Passed or not, and why not, of one check."""
    (entry,) = [entry for entry in CHECKS if entry.id == check]
    outcome = check_vendor(
        access(base_url), Subject(model, **subject), bounds=bounds, checks=[entry]
    )
    finding = outcome.results[0].evidence.finding
    return finding.passed, finding.reason


def test_the_order_and_what_must_pass():
    assert [(check.id, check.is_required) for check in CHECKS] == [
        ("arithmetic", True),
        ("json", True),
        ("stream", True),
        ("include_usage", False),
        ("usage", False),
        ("tools", False),
        ("error_shape", True),
        ("cancel", False),
        ("long_input", False),
        ("first_token", False),
    ]


@pytest.mark.parametrize(
    ("check", "model", "passed", "reason"),
    [
        ("arithmetic", "echo", False, "the answer does not say that it is 4"),
        ("arithmetic", "echo-error-200", False, "the answer is no chat.completion: The model is"),
        ("arithmetic", "no-such-model", False, "answered 404: The model `no-such-model` does not"),
        ("arithmetic", "echo-401", None, "the vendor refuses our credential or account (401)"),
        ("arithmetic", "echo-429", None, "the vendor is not able to answer now (429)"),
        ("arithmetic", "echo-500", None, "the vendor is not able to answer now (500)"),
        ("arithmetic", "echo-cut", False, "the vendor closed the connection before the end"),
        ("json", "echo", False, "the answer is not exactly the JSON"),
        ("stream", "echo", True, ""),
        ("stream", "echo-no-done", False, "there is no [DONE] at the end"),
        ("stream", "echo-json-as-stream", False, "the answer is one JSON body instead of events"),
        ("stream", "echo-error-200", False, "an event is an error"),
        ("stream", "echo-cut", False, "the vendor closed the connection before the end"),
        ("stream", "echo-500", None, "the vendor is not able to answer now (500)"),
        ("include_usage", "echo", True, ""),
        ("include_usage", "echo-no-usage", False, "the stream carries no usage although it was"),
        ("include_usage", "echo-zero-usage", False, "the usage cannot be true: a count is missing"),
        ("tools", "echo-tools", True, ""),
        ("tools", "echo", None, "the model answered in words, so its calls were not seen"),
        ("tools", "no-such-model", None, "the vendor takes no tools: 404: The model"),
        ("error_shape", "echo", True, ""),
        ("long_input", "echo", True, ""),
        ("long_input", "echo-no-usage", None, "without usage, a prompt that was cut cannot be"),
        ("long_input", "no-such-model", False, "refused a prompt of 3000 words: 404: The model"),
        ("first_token", "echo", True, ""),
        ("first_token", "echo-reasoning", True, ""),
        ("cancel", LONG, True, ""),
        ("cancel", "echo-chunks-3-1", None, "the answer ended before anyone could leave"),
    ],
)
def test_benchecho_is_found_out(benchecho, check, model, passed, reason):
    result = found(benchecho, check, model)
    assert result[0] is passed
    assert result[1].startswith(reason)


class TestUsage:
    def test_a_count_that_is_not_ours_is_found(self, benchecho):
        assert found(benchecho, "usage", family="qwen3") == (
            False,
            "the vendor's count is not ours",
        )

    def test_a_family_without_an_exact_count_is_undecided(self, benchecho):
        words = "we have no exact count for family fallback"
        assert found(benchecho, "usage") == (None, words)

    @pytest.mark.parametrize(
        ("model", "reason"),
        [
            ("echo-no-usage", "the answer has no usage"),
            ("echo-zero-usage", "the usage cannot be true: a count is missing or zero"),
        ],
    )
    def test_no_usage_fails_in_any_family(self, benchecho, model, reason):
        assert found(benchecho, "usage", model) == (False, reason)


def test_a_vendor_that_refuses_stream_options_is_not_asked(benchecho):
    passed, reason = found(benchecho, "include_usage", accepts_stream_options=False)
    assert (passed, reason) == (
        None,
        "the catalog says that this vendor refuses stream_options",
    )


def test_a_long_input_fits_the_catalogs_context(benchecho):
    assert found(benchecho, "long_input", "no-such-model", context_tokens=500) == (
        False,
        "refused a prompt of 250 words: 404: The model `no-such-model` does not exist.",
    )


def test_a_slow_first_token_fails(benchecho):
    passed, reason = found(benchecho, "first_token", "echo-slow-250")
    assert passed is False
    assert reason.startswith("the first token took 2")


def test_a_vendor_that_never_answers_is_not_probed(benchecho):
    bounds = replace(QUICK, call_s=0.2)
    assert found(benchecho, "arithmetic", "echo-never", bounds) == (
        None,
        "the vendor did not begin to answer in time",
    )


def test_a_vendor_that_is_away_is_not_probed():
    with served(Benchecho(Stats())) as base_url:
        pass
    assert found(base_url, "arithmetic") == (
        None,
        "the vendor was not reached: ConnectionRefusedError",
    )


def test_an_answer_that_ends_soon_tells_no_stop(benchecho, monkeypatch):
    monkeypatch.setattr(leaving, "SLOW_ENOUGH_S", 60.0)
    assert found(benchecho, "cancel", LONG) == (
        None,
        "the vendor answers too fast for its stop to be told from its end",
    )


def test_a_vendor_that_goes_on_after_we_have_left_fails():
    with served(Stubborn()) as base_url:
        assert found(base_url, "cancel", LONG) == (
            False,
            "the vendor went on after we had left",
        )


async def answers_badly(scope, receive, send) -> None:
    """The status and body that the path's prefix names."""
    _, status, body, *_ = scope["path"].split("/")
    await receive()
    await send({"type": "http.response.start", "status": int(status), "headers": []})
    await send({"type": "http.response.body", "body": body.encode()})


@pytest.mark.parametrize(
    ("status", "body", "passed", "reason"),
    [
        (200, "{}", False, "answered 200 to a request whose messages are no list"),
        (500, "{}", False, "answered 500 to a bad request, which clients would retry"),
        (404, '{"error":"no such model"}', False, "the body is not {error: {message}}"),
        (422, '{"detail":[]}', False, "the body is not {error: {message}}"),
        (400, "Bad Request", False, "the body is not {error: {message}}"),
        (400, '{"error":{"message":"messages is a list"}}', True, ""),
        (401, '{"error":{"message":"no"}}', None, "the vendor refuses our credential or account"),
        (429, '{"error":{"message":"no"}}', None, "the vendor is not able to answer now (429)"),
    ],
)
def test_errors_have_a_shape(status, body, passed, reason):
    with served(answers_badly) as base_url:
        url = base_url.replace("/v1", f"/{status}/{body.replace(' ', '%20')}/v1")
        result = found(url, "error_shape")
    assert result[0] is passed
    assert result[1].startswith(reason)


def test_nothing_to_see_leaves_cancel_undecided():
    with served(answers_badly) as base_url:
        passed, reason = found(base_url.replace("/v1", "/200/{}/v1"), "cancel")
    assert (passed, reason) == (
        None,
        "the vendor does not show what it is working on, nor then a stop",
    )


def test_a_good_vendor_passes_with_its_open_questions():
    with served(Clever()) as base_url:
        outcome = check_vendor(access(base_url), Subject("echo"), bounds=QUICK)
    assert outcome.passed is True
    assert {result.check.id: result.passed for result in outcome.results} == {
        **dict.fromkeys(("arithmetic", "json", "stream", "include_usage", "error_shape"), True),
        **dict.fromkeys(("long_input", "first_token"), True),
        **dict.fromkeys(("usage", "tools", "cancel"), None),
    }
    assert 3_000 < outcome.spent_tokens < 6_000
