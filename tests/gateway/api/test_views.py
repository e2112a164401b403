from datetime import UTC, datetime

import pytest
from django.utils import timezone

from billing.ids import completion_id, new_exchange_id, request_id
from billing.models import Account, Price
from billing.usage import Usage
from gateway.errors import model_not_found, not_found
from gateway.models import Model, Route, Vendor
from keys.models import KeyUse
from tests.gateway.exchanges.made import ATTEMPT, MODEL, VENDOR_MODEL, Maker, a_stream, record

NOT_FOUND = not_found().as_dict()


@pytest.fixture
def alice(world):
    """Acme's key with a price for the model that exchanges are made of."""
    tenant = world.tenant()
    made = world.key(tenant)
    price = world.price(MODEL, input_price="0.2795", output_price="0.419")
    return made, Maker(tenant, made.key, price)


@pytest.fixture
def charlie(world):
    return world.key(world.tenant("Charlies"))


def a_model(name: str, *, is_active: bool = True, has_vendor: bool = True) -> Model:
    model = Model.objects.create(name=name, is_active=is_active)
    vendor, _ = Vendor.objects.get_or_create(
        name=f"north-{has_vendor}",
        defaults={"base_url": "http://127.0.0.1:9/v1", "is_active": has_vendor},
    )
    Route.objects.create(model=model, vendor=vendor, vendor_model="m")
    return model


# --- one request ------------------------------------------------------------------------------


def test_a_settled_request_explains_its_charge_to_the_last_digit(caller, alice) -> None:
    made, maker = alice
    estimate = {
        "sentence": "Counted.",
        "method": "approximate",
        "family": "deepseek",
        "vocabulary": "o200k_base",
        "expected_error": "0.03",
        "correction": None,
    }
    message = {
        "vendor_status": None,
        "vendor_message": None,
        "user_status": 200,
        "user_message": "vendor returned no token usage; billed at estimate",
    }
    exchange = maker.settled(usage_source="estimate", estimate=estimate, facts={"message": message})

    answer = caller(made.secret).get(f"/v1/requests/{request_id(exchange.id)}")

    assert answer.status_code == 200
    shape = answer.json()
    assert {name: shape[name] for name in ("id", "completion_id", "state", "outcome", "model")} == {
        "id": request_id(exchange.id),
        "completion_id": completion_id(exchange.id),
        "state": "settled",
        "outcome": "answered",
        "model": MODEL,
    }
    assert (shape["vendor"], shape["vendor_model"]) == ("north", VENDOR_MODEL)
    assert shape["key"]["masked"] == maker.key.masked
    assert shape["usage"] == {
        "prompt_tokens": 1843,
        "completion_tokens": 1128,
        "total_tokens": 2971,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
    assert shape["usage_source"] == "estimate"
    assert (shape["hold"], shape["charge"], shape["released"], shape["currency"]) == (
        "0.002231343",
        "0.000987751",
        "0.001243592",
        "USD",
    )
    assert shape["price_lines"] == [
        {
            "dimension": "input",
            "quantity": 1843,
            "unit": "million tokens",
            "unit_price": "0.279500000",
            "exact": "0.000515118500000",
            "amount": "0.000515119",
            "source": "estimate",
        },
        {
            "dimension": "output",
            "quantity": 1128,
            "unit": "million tokens",
            "unit_price": "0.419000000",
            "exact": "0.000472632000000",
            "amount": "0.000472632",
            "source": "estimate",
        },
    ]
    assert shape["price"]["id"] == maker.price.public_id
    assert shape["estimate"] == estimate
    assert shape["message"] == message
    assert shape["attempts"] == [
        {
            "number": 1,
            "vendor": "north",
            "vendor_model": VENDOR_MODEL,
            "status": 200,
            "error": None,
            "started_ms": 4,
            "first_byte_ms": 20,
            "ended_ms": 50,
        }
    ]
    assert shape["timings"] == {"first_byte_ms": 703, "duration_ms": 4861}
    assert (shape["status_code"], shape["finish_reason"], shape["stream"]) == (200, "stop", True)
    assert datetime.fromisoformat(shape["created_at"]) <= datetime.now(UTC)


def test_a_request_is_found_by_the_id_of_its_completion(caller, alice) -> None:
    made, maker = alice
    exchange = maker.settled()
    by_completion = caller(made.secret).get(f"/v1/requests/{completion_id(exchange.id)}")
    by_request = caller(made.secret).get(f"/v1/requests/{request_id(exchange.id)}")
    assert by_completion.json() == by_request.json()


def test_cached_and_reasoning_tokens_are_inside_their_totals(caller, alice) -> None:
    made, maker = alice
    usage = Usage(input_tokens=10, cached_input_tokens=4, output_tokens=5, reasoning_tokens=3)
    exchange = maker.settled(usage=usage)
    shape = caller(made.secret).get(f"/v1/requests/{request_id(exchange.id)}").json()
    assert (shape["usage"]["prompt_tokens"], shape["usage"]["completion_tokens"]) == (14, 8)
    assert shape["usage"]["prompt_tokens_details"]["cached_tokens"] == 4
    assert shape["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3


def test_before_it_is_settled_a_request_shows_its_hold(caller, alice) -> None:
    made, maker = alice
    for exchange_id, state in (
        (maker.held().exchange_id, "open"),
        (maker.estimating().id, "estimating"),
    ):
        shape = caller(made.secret).get(f"/v1/requests/{request_id(exchange_id)}").json()
        assert (shape["state"], shape["hold"], shape["charge"]) == (state, "0.002231343", None)
        assert (shape["usage"], shape["usage_source"], shape["price_lines"]) == (None, "none", [])


def test_a_refused_request_is_there_at_zero(caller, alice) -> None:
    made, maker = alice
    shape = caller(made.secret).get(f"/v1/requests/{request_id(maker.refused().id)}").json()
    assert (shape["outcome"], shape["status_code"], shape["error_code"]) == (
        "refused",
        402,
        "insufficient_balance",
    )
    assert (shape["hold"], shape["charge"], shape["attempts"]) == ("0.000000000", "0.000000000", [])


def test_what_a_vendor_said_to_our_account_is_for_staff(caller, alice) -> None:
    made, maker = alice
    attempt = {**ATTEMPT, "status": 401, "vendor_message": "bad key sk-vendor-CANARY"}
    exchange = maker.settled(outcome="failed", cost_nanos=0, facts={"attempts": [attempt]})
    answer = caller(made.secret).get(f"/v1/requests/{request_id(exchange.id)}")
    assert answer.json()["attempts"][0]["status"] is None
    assert b"CANARY" not in answer.content


def test_another_tenants_request_is_like_one_that_never_was(caller, alice, charlie) -> None:
    _, maker = alice
    exchange = maker.settled()
    record(exchange, answer=a_stream("hi"))
    names = [
        request_id(exchange.id),
        completion_id(exchange.id),
        request_id(new_exchange_id()),
        "req_short",
        "req_" + "Z" * 26,
        str(exchange.id),
        "nothing",
    ]
    answers = [caller(charlie.secret).get(f"/v1/requests/{name}") for name in names]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(404, NOT_FOUND)] * len(
        names
    )


# --- models -----------------------------------------------------------------------------------


def test_models_are_listed_with_their_prices(caller, world) -> None:
    a_model("echo")
    world.price("echo", input_price="0.5", output_price="2", cached_input="0.1")
    made = world.key(world.tenant())
    (model,) = caller(made.secret).get("/v1/models").json()["data"]
    assert (model["id"], model["object"], model["owned_by"]) == ("echo", "model", "farthing")
    assert isinstance(model["created"], int)
    assert model["pricing"] == {
        "currency": "USD",
        "input": "0.500000000",
        "cached_input": "0.100000000",
        "cache_write": "0.500000000",
        "image_input": "0.500000000",
        "audio_input": "0.500000000",
        "output": "2.000000000",
        "reasoning": "2.000000000",
        "audio_output": "2.000000000",
        "request": "0.000000000",
        "tiers": [],
    }
    assert caller(made.secret).get("/v1/models/echo").json() == model


def test_only_what_can_be_used_is_listed(caller, world) -> None:
    for name, options in (
        ("usable", {}),
        ("inactive", {"is_active": False}),
        ("no-vendor", {"has_vendor": False}),
    ):
        a_model(name, **options)
        world.price(name)
    a_model("no-price")
    a_model("other-currency")
    a_model("tomorrow")
    now = timezone.now()
    for name, currency, days in (("other-currency", "EUR", 0), ("tomorrow", "USD", 1)):
        Price.objects.create(
            model=name,
            currency=currency,
            effective_from=now + timezone.timedelta(days=days),
            input_nanos=1,
            output_nanos=1,
        )
    made = world.key(world.tenant())
    data = caller(made.secret).get("/v1/models").json()["data"]
    assert [model["id"] for model in data] == ["usable"]


def test_the_price_in_force_is_shown(caller, world) -> None:
    a_model("echo")
    for days, nanos in ((-9, 1), (-1, 2), (9, 3)):
        Price.objects.create(
            model="echo",
            currency="USD",
            effective_from=timezone.now() + timezone.timedelta(days=days),
            input_nanos=nanos,
            output_nanos=0,
        )
    made = world.key(world.tenant())
    assert caller(made.secret).get("/v1/models/echo").json()["pricing"]["input"] == "0.000000002"


def test_a_key_sees_the_models_that_it_may_use(caller, world) -> None:
    for name in ("org/one", "two"):
        a_model(name)
        world.price(name)
    made = world.key(world.tenant(), allowed_models=["org/one"])
    data = caller(made.secret).get("/v1/models").json()["data"]
    assert [model["id"] for model in data] == ["org/one"]
    assert caller(made.secret).get("/v1/models/org/one").status_code == 200
    refused = caller(made.secret).get("/v1/models/two")
    unknown = caller(made.secret).get("/v1/models/three")
    assert (refused.status_code, refused.json()) == (404, model_not_found().as_dict())
    assert (unknown.status_code, unknown.json()) == (404, model_not_found().as_dict())


def test_a_test_key_needs_no_price(caller, world) -> None:
    a_model("echo")
    made = world.key(world.tenant(), kind="test")
    (model,) = caller(made.secret).get("/v1/models").json()["data"]
    assert (model["id"], model["pricing"]) == ("echo", None)


# --- key and balance --------------------------------------------------------------------------


def test_a_key_tells_about_itself(caller, alice, world) -> None:
    made, maker = alice
    second = world.key(
        maker.tenant, "ci", requests_per_minute=60, concurrent_requests=4, allowed_models=["a"]
    )
    cost = maker.settled().charge.charge_nanos
    Maker(maker.tenant, second.key, maker.price).settled()
    KeyUse.objects.create(key=made.key, last_used_at=timezone.now())

    own = caller(made.secret).get("/v1/key").json()
    assert (own["id"], own["name"], own["masked"]) == (
        made.key.public_id,
        "notebooks",
        made.key.masked,
    )
    assert (own["state"], own["test"], own["models"]) == ("active", False, None)
    assert own["limits"] == {"requests_per_minute": None, "concurrent_requests": None}
    assert own["spent"] == f"0.000{cost}"
    assert own["spent_since"].endswith("-01T00:00:00.000Z")
    assert own["last_used_at"] is not None
    other = caller(second.secret).get("/v1/key").json()
    assert other["limits"] == {"requests_per_minute": 60, "concurrent_requests": 4}
    assert (other["models"], other["last_used_at"]) == (["a"], None)
    assert made.secret not in str(own)


def test_a_balance_adds_up(caller, alice) -> None:
    made, maker = alice
    maker.held(400_000_000)
    Account.objects.filter(tenant=maker.tenant).update(credit_limit_nanos=1_000_000_000)
    shape = caller(made.secret).get("/v1/balance").json()
    assert shape.pop("as_of").endswith("Z")
    assert shape == {
        "object": "balance",
        "currency": "USD",
        "balance": "10.000000000",
        "on_hold": "0.400000000",
        "credit_limit": "1.000000000",
        "available": "10.600000000",
    }


def test_a_tenant_without_a_wallet_has_nothing(caller, alice) -> None:
    made, maker = alice
    maker.tenant.currency = "EUR"
    maker.tenant.save(update_fields=["currency"])
    shape = caller(made.secret).get("/v1/balance").json()
    assert (shape["currency"], shape["available"]) == ("EUR", "0.000000000")
    assert not Account.objects.filter(tenant=maker.tenant, currency="EUR").exists()


# --- every answer -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["models", "models/x", "requests/x", "key", "balance", "nothing"])
def test_every_answer_has_an_id_and_is_never_kept(caller, alice, path: str) -> None:
    made, _ = alice
    answer = caller(made.secret).get(f"/v1/{path}")
    assert answer["x-request-id"].startswith("req_")
    assert answer["cache-control"] == "no-store"
    assert answer["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["models", "models/x", "requests/x", "key", "balance"])
def test_nothing_is_read_without_a_key(caller, db, path: str) -> None:
    assert caller(None).get(f"/v1/{path}").status_code == 401


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "ODD"])
def test_an_unknown_path_is_404_in_json_whatever_the_method(caller, db, method: str) -> None:
    for path in ("/v1/", "/v1/nothing", "/v1/models/", "/v1/requests", "/v1/chat/completions/"):
        answer = caller(None).call(method, path)
        assert (answer.status_code, answer.json()) == (404, NOT_FOUND), path


def test_head_answers_like_get_without_a_body(caller, alice) -> None:
    made, _ = alice
    answer = caller(made.secret).call("HEAD", "/v1/balance")
    assert (answer.status_code, answer.content) == (200, b"")


def test_options_needs_no_key(caller, db) -> None:
    answer = caller(None).call("OPTIONS", "/v1/models")
    assert (answer.status_code, answer["allow"]) == (204, "GET, HEAD, OPTIONS")
    assert caller(None).call("OPTIONS", "/v1/chat/completions")["allow"] == "POST, OPTIONS"


def test_a_wrong_method_is_405_in_json(caller, alice) -> None:
    made, _ = alice
    answer = caller(made.secret).call("DELETE", "/v1/key")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert answer["allow"] == "GET, HEAD, OPTIONS"
    assert caller(made.secret).get("/v1/chat/completions").status_code == 405


def test_without_the_relay_a_completion_is_503(caller, alice) -> None:
    made, _ = alice
    answer = caller(made.secret).call("POST", "/v1/chat/completions")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
