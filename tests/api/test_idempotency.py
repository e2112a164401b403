"""Idempotency-Key on the relay: one key, one vendor call, one charge."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import requests
from django.utils import timezone

from billing.ids import new_exchange_id
from billing.models import Exchange
from gateway.exchanges.forgetting import forget_idempotent_answers
from gateway.models import IdempotentRequest
from gateway.relay.idempotency import ABANDONED_AFTER_S
from tests.api.conftest import events
from tests.stack import until

KEY = {"Idempotency-Key": "order-4711"}


def repeat(caller, *arguments, headers=KEY, **body) -> requests.Response:
    """The repeat's answer, once the first one's is kept."""

    def answered():
        answer = caller.chat(*arguments, headers=headers, **body)
        return [answer] if answer.status_code != 409 else None

    return until(answered)[0]


def exchanges(caller) -> int:
    return (
        Exchange.objects.filter(tenant_id=caller.tenant.pk)
        .exclude(error_code="in_progress")
        .count()
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_repeat_gets_the_same_answer_without_a_second_charge(caller, stream: bool) -> None:
    alice = caller()
    first = alice.chat("farthing-echo", headers=KEY, stream=stream)
    alice.settled(first)
    balance = alice.balance()

    again = repeat(alice, "farthing-echo", stream=stream)

    assert again.status_code == 200
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert again.headers["x-request-id"] == first.headers["x-request-id"]
    assert again.headers["content-type"] == first.headers["content-type"]
    if stream:
        assert events(again)[-1] == "[DONE]"
    assert alice.balance() == balance
    assert exchanges(alice) == 1


def test_another_body_under_the_same_key_is_422(caller) -> None:
    alice = caller()
    alice.settled(alice.chat("farthing-echo", headers=KEY))
    answer = alice.chat("farthing-echo", "Something else.", headers=KEY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "key_reused")
    assert answer.headers["x-should-retry"] == "false"


def test_five_at_once_are_one_call_and_one_charge(caller) -> None:
    alice = caller()
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _n: alice.chat("farthing-echo-slow", headers=KEY), range(5)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200, 409, 409, 409, 409]
    running = next(answer for answer in answers if answer.status_code == 409)
    assert running.json()["error"]["code"] == "in_progress"
    assert running.headers["x-should-retry"] == "true"
    assert repeat(alice, "farthing-echo-slow").headers["idempotency-replayed"] == "true"
    assert exchanges(alice) == 1


def test_the_key_is_the_tenants_own(caller) -> None:
    alice, charlie = caller(), caller()
    first, other = (one.chat("farthing-echo", headers=KEY) for one in (alice, charlie))
    assert "idempotency-replayed" not in other.headers
    assert other.headers["x-request-id"] != first.headers["x-request-id"]


def test_what_cost_nothing_gives_the_key_back(caller) -> None:
    alice = caller(balance="0")
    assert alice.chat("farthing-echo", headers=KEY).status_code == 402
    assert not IdempotentRequest.objects.filter(tenant_id=alice.tenant.pk).exists()
    assert alice.chat("farthing-echo-500", headers={"Idempotency-Key": "b"}).status_code == 402


def test_a_vendor_that_failed_without_billing_may_be_asked_again(caller) -> None:
    alice = caller()
    first = alice.chat("farthing-echo-500", headers=KEY)
    assert first.headers["x-should-retry"] == "true"
    alice.settled(first)
    again = until(
        lambda: [a] if (a := alice.chat("farthing-echo-500", headers=KEY)).status_code != 409 else 0
    )[0]
    assert "idempotency-replayed" not in again.headers
    assert exchanges(alice) == 2


def test_an_answer_that_may_have_cost_money_is_kept_with_its_error(caller) -> None:
    alice = caller()
    first = alice.chat("farthing-echo-cut", headers=KEY, stream=True)
    alice.settled(first)
    again = repeat(alice, "farthing-echo-cut", stream=True)
    assert again.content == first.content
    assert exchanges(alice) == 1


def test_a_client_that_left_gets_the_whole_answer_by_its_repeat(caller) -> None:
    alice = caller()
    with requests.post(
        f"{alice.base_url}/v1/chat/completions",
        json={
            "model": "farthing-echo-chunks",
            "stream": True,
            "messages": [{"role": "user", "content": "Say hello."}],
        },
        headers={**alice.headers, **KEY},
        stream=True,
        timeout=20,
    ) as left:
        next(left.iter_lines())
    again = repeat(alice, "farthing-echo-chunks", stream=True)
    assert events(again)[-1] == "[DONE]"
    assert exchanges(alice) == 1


def test_a_key_whose_request_never_began_is_free_again_after_a_while(caller) -> None:
    """Its gateway died between the claim and the hold: no exchange says what became of it."""
    alice = caller()
    alice.settled(alice.chat("farthing-echo", headers=KEY))
    kept = IdempotentRequest.objects.filter(tenant_id=alice.tenant.pk)
    until(kept.filter(finished_at__isnull=False).exists)

    def lost(ago_s: float) -> None:
        kept.update(
            finished_at=None,
            exchange_id=new_exchange_id(),
            created_at=timezone.now() - timedelta(seconds=ago_s),
        )

    lost(ABANDONED_AFTER_S - 10)
    assert alice.chat("farthing-echo", headers=KEY).status_code == 409
    lost(ABANDONED_AFTER_S + 1)
    answer = alice.chat("farthing-echo", headers=KEY)
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (200, False)


@pytest.mark.parametrize("key", ["a" * 256, "two words", "ünï"])
def test_a_key_that_cannot_be_one_is_400(caller, key: str) -> None:
    answer = caller().chat("farthing-echo", headers={"Idempotency-Key": key.encode()})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "idempotency-key")


def test_after_a_day_a_key_is_new_again(caller) -> None:
    alice = caller()
    alice.settled(alice.chat("farthing-echo", headers=KEY))
    kept = IdempotentRequest.objects.filter(tenant_id=alice.tenant.pk)
    until(kept.filter(finished_at__isnull=False).exists)
    kept.update(created_at="2026-01-01T00:00Z")
    assert "idempotency-replayed" not in alice.chat("farthing-echo", headers=KEY).headers
    until(kept.filter(finished_at__isnull=False).exists)
    kept.update(created_at="2026-01-01T00:00Z")
    assert forget_idempotent_answers() >= 1
    assert not kept.exists()
