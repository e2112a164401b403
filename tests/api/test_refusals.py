"""A refusal says why: which limit, its size, what of it is used, when there is room again."""

from datetime import datetime, timedelta
from typing import Any

import pytest
import requests
from django.utils import timezone

from billing.limits import set_limit
from billing.models import LimitPeriod, Plan, PlanTerms
from billing.plans import assign_plan
from tests.api.conftest import Caller
from tests.stack import until

MODEL = "farthing-echo"
OTHER = "farthing-echo-no-usage"
UNIT = 10**9


@pytest.fixture
def on_plan(caller):
    """A caller whose tenant is on a plan of its own, once the gateway knows of it."""

    def make(knows, **terms: Any) -> Caller:
        alice = caller()
        plan = Plan.objects.create(name=f"plan-{alice.tenant.slug}")
        since = timezone.now() - timedelta(minutes=1)
        PlanTerms.objects.create(plan=plan, currency="USD", effective_from=since, **terms)
        assign_plan(alice.tenant, plan, actor="tests")
        until(lambda: knows(alice))
        return alice

    return make


def another_key(world, alice: Caller, **limits: Any) -> Caller:
    created = world.key(alice.tenant, "second", **limits)
    return Caller(alice.base_url, created.secret, alice.tenant, created.key)


def why(alice: Caller, answer: requests.Response) -> dict[str, Any]:
    alice.settled(answer)
    shape = alice.get(f"/v1/requests/{answer.headers['x-request-id']}").json()
    assert shape["message"]["user_message"] == answer.json()["error"]["message"]
    return shape["limit"]


def ahead_s(moment: str) -> float:
    return (datetime.fromisoformat(moment) - timezone.now()).total_seconds()


# --- plans ------------------------------------------------------------------------------------


def tells_of_four(alice: Caller) -> bool:
    return alice.chat(MODEL).headers.get("x-ratelimit-limit-requests") == "4"


def test_a_plans_requests_a_minute_are_the_whole_tenants(on_plan, world) -> None:
    alice = on_plan(tells_of_four, requests_per_minute=4)
    second = another_key(world, alice)
    answers = [caller.chat(MODEL) for caller in (second, alice, second, alice, second)]
    refused = next(answer for answer in answers if answer.status_code == 429)
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert error["message"].startswith(
        "The limit of 4 requests per minute of your organisation's plan is reached."
    )
    assert refused.headers["x-should-retry"] == "true"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["x-ratelimit-limit-requests"] == "4"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    reason = why(second, refused)
    assert (reason["kind"], reason["scope"], reason["size"]) == (
        "requests_per_minute",
        "tenant",
        "4",
    )
    assert -1 < ahead_s(reason["resets_at"]) <= 60


def test_a_plans_models_are_all_that_its_keys_may_use(on_plan, world) -> None:
    def knows(alice: Caller) -> bool:
        return alice.chat(OTHER).status_code == 403

    alice = on_plan(knows, allowed_models=[MODEL])
    refused = alice.chat(OTHER)
    assert refused.json()["error"] == {
        "message": "Your organisation, by its plan, may not use the requested model. You were not "
        "charged. Choose a model from GET /v1/models, or ask an admin of your organisation to "
        "allow it.",
        "type": "permission_error",
        "param": "model",
        "code": "model_not_allowed",
    }
    assert refused.headers["x-should-retry"] == "false"
    assert alice.chat(MODEL).status_code == 200
    assert [model["id"] for model in alice.get("/v1/models").json()["data"]] == [MODEL]
    test = another_key(world, alice, kind="test")
    assert (test.chat(OTHER).status_code, test.chat(MODEL).status_code) == (403, 200)


# --- money ------------------------------------------------------------------------------------


def test_a_spend_limit_is_shown_with_the_request_that_it_refused(caller) -> None:
    alice = caller()
    set_limit(alice.tenant, LimitPeriod.MONTH, 1_000, actor="tests", key=alice.key)
    refused = alice.chat(MODEL, max_tokens=100)
    reason = why(alice, refused)
    needed = reason.pop("needed")
    assert 0 < ahead_s(reason.pop("resets_at")) < 32 * 86_400
    assert reason == {
        "kind": "spend",
        "scope": "key",
        "period": "month",
        "size": "0.000001000",
        "posted": "0.000000000",
        "held": "0.000000000",
    }
    assert needed in refused.json()["error"]["message"]


def test_a_balance_that_is_too_small_is_shown_beside_what_was_needed(caller) -> None:
    alice = caller(balance="0.000001")
    refused = alice.chat(MODEL, max_tokens=1_000)
    reason = why(alice, refused)
    assert (reason["kind"], reason["scope"], reason["size"], reason["held"]) == (
        "balance",
        "tenant",
        "0.000001000",
        "0.000000000",
    )
    message = refused.json()["error"]["message"]
    assert f"this request could cost {reason['needed']}" in message
    assert reason["resets_at"] is None


def test_a_keys_own_limit_is_named_as_its_own(caller) -> None:
    alice = caller(requests_per_minute=1)
    alice.chat(MODEL)
    refused = alice.chat(MODEL)
    assert "The limit of 1 requests per minute of this key" in refused.json()["error"]["message"]
    assert (why(alice, refused)["scope"], refused.status_code) == ("key", 429)


def test_what_was_served_was_stopped_by_nothing(caller) -> None:
    alice = caller()
    answer = alice.chat(MODEL)
    alice.settled(answer)
    assert alice.get(f"/v1/requests/{answer.headers['x-request-id']}").json()["limit"] is None


def test_a_key_shows_the_limits_that_count_it(caller) -> None:
    alice = caller()
    set_limit(alice.tenant, LimitPeriod.TOTAL, UNIT, actor="tests")
    answer = alice.chat(MODEL)
    charge = alice.settled(answer).charge.charge_nanos
    (limit,) = alice.get("/v1/key").json()["spend_limits"]
    assert (limit["scope"], limit["period"], limit["action"]) == ("tenant", "total", "hard")
    assert (limit["size"], limit["held"], limit["resets_at"]) == (
        "1.000000000",
        "0.000000000",
        None,
    )
    assert limit["posted"] == f"0.{charge:09d}"
    assert limit["remaining"] == f"0.{UNIT - charge:09d}"
