from dataclasses import replace

import pytest

from gateway.models import KEYLESS, Vendor
from gateway.qualification.bounds import Bounds
from gateway.qualification.checks import CHECKS, Check, Subject
from gateway.qualification.findings import PASSED, Evidence, failed, undecided
from gateway.qualification.run import Result, check_vendor, verdict
from gateway.runtime.snapshot import access_of

BOUNDS = Bounds(call_s=2.0, run_s=10.0, stop_s=0.5)
FINDINGS = {True: PASSED, False: failed("no"), None: undecided("away")}


def access(base_url: str, **fields):
    values = {"name": "acme", "credential": KEYLESS, **fields}
    return access_of(Vendor(pk=1, base_url=base_url, **values))


def result(passed: bool | None, *, is_required: bool = True) -> Result:
    check = Check("a-check", is_required, CHECKS[0].make)
    return Result(check, Evidence(FINDINGS[passed], None))


@pytest.mark.parametrize(
    ("required", "others", "passed"),
    [
        ([True, True], [True], True),
        ([True, True], [None], True),
        ([True, True], [False], False),
        ([True, None], [True], None),
        ([True, None], [False], False),
        ([True, False], [True], False),
        ([None, None], [], None),
        ([], [True], None),
    ],
)
def test_verdict_needs_all_that_is_required_and_no_failure(required, others, passed):
    results = [*map(result, required), *(result(one, is_required=False) for one in others)]
    assert verdict(results) is passed


def test_a_run_is_bounded_in_tokens(benchecho):
    """What does not fit any more is not sent, and is no failure."""
    bounds = replace(BOUNDS, tokens=400)
    outcome = check_vendor(access(benchecho), Subject("echo"), bounds=bounds)
    assert outcome.spent_tokens <= 400
    reasons = {r.check.id: r.evidence.finding.reason for r in outcome.results}
    assert reasons["long_input"] == "the run's bound of 400 tokens is reached"
    assert reasons["error_shape"] == ""  # costs nothing


def test_spent_tokens_are_the_vendors_count_or_the_most_that_it_can_be(benchecho):
    def spent(model: str) -> int:
        subject, checks = Subject(model, family="qwen3"), CHECKS[:1]
        outcome = check_vendor(access(benchecho), subject, bounds=BOUNDS, checks=checks)
        return outcome.spent_tokens

    assert spent("echo") == 4 + 4 + 64
    assert spent("echo-no-usage") >= 17 + 128


def test_a_run_is_bounded_in_time(benchecho):
    bounds = replace(BOUNDS, run_s=0.2)
    checks = CHECKS[:2]
    outcome = check_vendor(access(benchecho), Subject("echo-never"), bounds=bounds, checks=checks)
    assert outcome.passed is None
    last = outcome.results[-1].evidence
    assert last.finding.reason == "the run's bound of 0.2 s is reached"
    assert (outcome.finished_at - outcome.started_at).total_seconds() < 2


def test_reasoning_in_any_answer_is_thinking(benchecho):
    def thinks(model: str) -> bool:
        checks = CHECKS[:1]
        return check_vendor(access(benchecho), Subject(model), bounds=BOUNDS, checks=checks).thinks

    assert thinks("echo-reasoning")
    assert not thinks("echo")


def test_the_vendor_is_sent_its_credential_and_says_who_it_is(clever):
    vendor = access(clever.base_url, credential="vk-1")
    outcome = check_vendor(vendor, Subject("echo"), bounds=BOUNDS, checks=CHECKS[:1])
    assert clever.seen[0][b"authorization"] == b"Bearer vk-1"
    assert outcome.server == "uvicorn"
    assert outcome.base_url == clever.base_url
