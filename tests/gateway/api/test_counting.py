import gzip

import orjson
import pytest
from django.test import Client
from django.utils import timezone

from billing.estimation import count_prompt
from billing.estimation.estimates import RULE_VERSION
from billing.models import Account, CountCorrection, Exchange, Transfer
from gateway.models import Model, Route, Vendor

PATH = "/v1/tokens/count"
VENDOR_MODEL = "qwen2.5-coder-1.5b"
MESSAGES = [{"role": "user", "content": "Compute 2+2. Answer briefly."}]


@pytest.fixture
def ask(caller, world):
    """Asks with Acme's key, after Acme's model `small` was put into the catalog at 1 and 4 USD."""
    tenant = world.tenant()
    secret = world.key(tenant).secret
    model = Model.objects.create(name="small", max_output_tokens=100, default_output_tokens=50)
    vendor = Vendor.objects.create(name="north", base_url="http://127.0.0.1:9/v1")
    Route.objects.create(model=model, vendor=vendor, vendor_model=VENDOR_MODEL)
    world.price("small")
    caller(secret)  # for its settings

    def post(body, key=secret, **headers: str):
        body = body if isinstance(body, bytes) else orjson.dumps(body)
        headers = {"authorization": f"Bearer {key}", **headers}
        client = Client(raise_request_exception=False)
        return client.post(PATH, body, content_type="application/json", headers=headers)

    post.tenant, post.world = tenant, world
    return post


def test_a_prompt_is_counted_and_priced_and_costs_nothing(ask) -> None:
    wallet = Account.objects.get(tenant=ask.tenant, kind="wallet")
    transfers = Transfer.objects.count()
    answer = ask({"model": "small", "messages": MESSAGES, "max_tokens": 30, "n": 2})
    counted = count_prompt({"messages": MESSAGES}, model=VENDOR_MODEL)
    told = answer.json()
    assert answer.status_code == 200
    assert (told["tokens"], told["method"]) == (38, "template-exact")
    assert (told["expected_error"], told["flags"]) == ("0", [])
    assert told["vocabulary_sha256"] == counted.vocabulary_sha256
    assert told["cost"]["currency"] == "USD"
    assert told["cost"]["amount"] == "0.000038000"
    assert [line["amount"] for line in told["cost"]["lines"]] == ["0.000038000"]
    # 38 at 1 and 60 at 4 USD a million, and what rounding can add.
    assert told["cost"]["worst_case"] == {"output_tokens": 60, "amount": "0.000278004"}
    assert not Exchange.objects.filter(tenant_id=ask.tenant.pk).exists()
    assert Transfer.objects.count() == transfers
    now = Account.objects.get(pk=wallet.pk)
    assert (now.posted_nanos, now.held_nanos) == (wallet.posted_nanos, wallet.held_nanos)


def test_what_a_vendors_own_counts_taught_is_in_the_answer(ask) -> None:
    CountCorrection.objects.create(
        vendor="north",
        vendor_model=VENDOR_MODEL,
        version=4,
        family="qwen2.5",
        rule_version=RULE_VERSION,
        prompt_offset=12,
        prompt_error="0.0300",
        sample_size=90,
        state="accepted",
        decided_at=timezone.now(),
    )
    told = ask({"model": "small", "messages": MESSAGES}).json()
    assert (told["tokens"], told["correction"], told["expected_error"]) == (38 + 12, 4, "0.0300")
    assert told["cost"]["amount"] == "0.000050000"
    assert "correction 4" in told["sentence"]


@pytest.mark.parametrize(("max_tokens", "most"), [(None, 50), (1_000, 100)])
def test_the_worst_case_is_bounded_as_a_hold_is(ask, max_tokens, most: int) -> None:
    bound = {} if max_tokens is None else {"max_tokens": max_tokens}
    told = ask({"model": "small", "messages": MESSAGES, **bound}).json()
    assert told["cost"]["worst_case"]["output_tokens"] == most


def test_a_repeat_has_the_same_answer(ask) -> None:
    body = {"model": "small", "messages": MESSAGES}
    first, second = (ask(body, **{"idempotency-key": "one"}) for _ in range(2))
    assert first.json() == second.json()


def test_a_packed_body_of_megabytes_is_counted(ask) -> None:
    content = "A bound is a promise. " * 200_000
    body = {"model": "small", "messages": [{"role": "user", "content": content}]}
    plain = ask(body)
    packed = ask(gzip.compress(orjson.dumps(body), 1), **{"content-encoding": "gzip"})
    assert plain.json()["tokens"] == packed.json()["tokens"] > 1_000_000


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "large", "messages": MESSAGES}, 404, "model_not_found"),
        (b"{", 400, "invalid_json"),
        ({"messages": MESSAGES}, 400, "missing_required_parameter"),
        ({"model": "small"}, 400, "missing_required_parameter"),
        ({"model": "small", "messages": "hi"}, 400, "invalid_type"),
    ],
)
def test_what_the_relay_refuses_is_refused(ask, body, status: int, code: str) -> None:
    answer = ask(body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_key_is_needed(ask) -> None:
    assert ask({"model": "small", "messages": MESSAGES}, key="sk_live_no").status_code == 401


def test_a_model_that_the_key_may_not_use_is_refused(ask) -> None:
    narrow = ask.world.key(ask.tenant, allowed_models=["other"]).secret
    answer = ask({"model": "small", "messages": MESSAGES}, key=narrow)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "model_not_allowed")


def test_a_model_without_a_price_is_refused_to_live_keys_and_counted_for_test_keys(ask) -> None:
    model = Model.objects.create(name="unpriced")
    Route.objects.create(model=model, vendor=Vendor.objects.get(), vendor_model=VENDOR_MODEL)
    body = {"model": "unpriced", "messages": MESSAGES}
    assert ask(body).json()["error"]["code"] == "model_not_priced"
    test_key = ask.world.key(ask.tenant, kind="test").secret
    told = ask(body, key=test_key).json()
    assert (told["tokens"], told["cost"]) == (38, None)
