"""Reports have the shape of the first one that was kept: its facts are written down here again."""

import json

from django.utils import timezone

from gateway.models import KEYLESS, Vendor
from gateway.qualification.bounds import Bounds
from gateway.qualification.checks import CHECKS, Check, Subject
from gateway.qualification.findings import PASSED, Evidence, Finding, failed, undecided
from gateway.qualification.report import Labels, report_of
from gateway.qualification.run import Outcome, Result, check_vendor
from gateway.runtime.snapshot import access_of

BOUNDS = Bounds(call_s=2.0, run_s=10.0, stop_s=0.5)
KEYS = [
    *("key", "backend", "runtime", "thinking", "temperature", "endpoint", "scope", "checks"),
    "owned_server_stopped",
]


def asked(prompt: str) -> dict:
    return {
        "model": "default_model",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": 128,
        "stream": False,
    }


def outcome_of(*evidences: Evidence, base_url: str = "http://127.0.0.1:1/v1") -> Outcome:
    checks = (Check(f"check-{n}", True, CHECKS[0].make) for n, _ in enumerate(evidences))
    results = tuple(map(Result, checks, evidences))
    now = timezone.now()
    return Outcome(Subject("small"), base_url, results, now, now, 0, "")


def test_report_has_the_shape_of_the_first_one(clever):
    vendor = access_of(Vendor(pk=1, name="acme", base_url=clever.base_url, credential=KEYLESS))
    outcome = check_vendor(vendor, Subject("default_model"), bounds=BOUNDS, checks=CHECKS[:2])
    labels = Labels("5bit", "Linux", "stock")
    report = report_of(outcome, labels, owned_server_stopped=True)
    assert list(report) == KEYS
    assert report["key"] == "5bit"
    assert (report["backend"], report["runtime"]) == ("Linux", "stock")
    assert (report["thinking"], report["temperature"]) == (False, 0)
    assert report["endpoint"] == "/v1/chat/completions"
    assert report["owned_server_stopped"] is True
    first, second = report["checks"]
    assert first["request"] == asked("Compute 2+2. Answer briefly.")
    assert second["request"] == asked(
        "Return only valid JSON with no markdown. The object must be exactly "
        '{"city":"Paris","count":3}.'
    )
    for check, name, content in (
        (first, "arithmetic", "4"),
        (second, "json", '{"city":"Paris","count":3}'),
    ):
        assert list(check) == ["id", "request", "response", "passed"]
        assert (check["id"], check["passed"]) == (name, True)
        assert check["response"]["choices"][0]["message"]["content"] == content


def test_what_is_not_stated_is_not_made_up():
    report = report_of(outcome_of(), Labels())
    assert report["key"] == "small"
    assert (report["backend"], report["runtime"]) == ("not stated", "not stated")
    assert report["owned_server_stopped"] is None


def test_scope_says_what_was_learnt_and_what_was_not():
    evidences = [Evidence(PASSED, {}), Evidence(failed("no"), {}), Evidence(undecided("away"), {})]
    scope = report_of(outcome_of(*evidences), Labels())["scope"]
    assert scope == (
        "3 authored HTTP checks, each made once, of one model at the vendor's own address. "
        "Passed: check-0. Failed: check-1. Could not be probed, which is no failure: check-2. "
        "No claim about the quality of answers, agents, images, audio, load or other models."
    )


def test_a_check_that_did_not_pass_says_why_with_figures():
    evidence = Evidence(Finding(passed=None, reason="away", observed={"words": 1}), None)
    (check,) = report_of(outcome_of(evidence), Labels())["checks"]
    assert check == {
        "id": "check-0",
        "request": None,
        "response": None,
        "passed": None,
        "reason": "away",
        "observed": {"words": 1},
    }


def test_no_secret_is_in_a_report():
    answer = {"error": {"message": "bad key vk-plain-1", "vk-plain-1": ["sk-abcdefghijklmnop1234"]}}
    evidence = Evidence(failed("answered 401: vk-plain-1"), {"model": "small"}, answer)
    text = json.dumps(report_of(outcome_of(evidence), Labels(), credential="vk-plain-1"))
    assert "vk-plain-1" not in text
    assert "sk-abcdefghijklmnop1234" not in text


def test_the_keyless_marker_is_no_secret():
    evidence = Evidence(PASSED, {}, {"said": KEYLESS})
    (check,) = report_of(outcome_of(evidence), Labels(), credential=KEYLESS)["checks"]
    assert check["response"] == {"said": KEYLESS}


def test_a_report_is_bounded_and_storable():
    deep: dict = {}
    for _ in range(100):
        deep = {"deeper": deep}
    evidence = Evidence(PASSED, {"long": "x" * 5_000, "odd": "\x00\ud800"}, deep)
    (check,) = report_of(outcome_of(evidence), Labels())["checks"]
    assert check["request"]["long"] == "x" * 2_000 + "… and 3000 more characters"
    assert check["request"]["odd"] == "\ufffd\ufffd"
    assert len(json.dumps(check["response"])) < 1_000
