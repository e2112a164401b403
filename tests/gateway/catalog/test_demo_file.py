from gateway.benchecho.behaviours import EXAMPLES, NAMED, behaviour_of
from gateway.catalog.file import parse
from gateway.demo import CATALOG
from gateway.models import KEYLESS

URL = "http://127.0.0.1:8001/v1"


def demo():
    return parse(CATALOG.read_bytes(), {"BENCHECHO_URL": URL})


def test_only_vendor_is_benchecho_without_a_key():
    (vendor,) = demo().vendors
    assert (vendor.name, vendor.base_url, vendor.credential) == ("benchecho", URL, KEYLESS)


def test_there_is_a_model_for_each_thing_that_benchecho_does():
    served = {route.vendor_model for model in demo().models for route in model.routes}
    assert all(behaviour_of(name) for name in served)
    assert served >= set(NAMED)
    for example in EXAMPLES:
        kind = example.rstrip("0123456789-")
        assert any(name.startswith(kind) for name in served)


def test_free_model_is_free_by_an_explicit_zero():
    models = {model.name: model for model in demo().models}
    (price,) = models["qwen2.5-coder-1.5b-free-g7"].prices
    assert (price.input_nanos, price.output_nanos, price.per_request_nanos) == (0, 0, 0)


def test_every_other_model_costs_something():
    for model in demo().models:
        (price,) = model.prices
        if model.name != "qwen2.5-coder-1.5b-free-g7":
            assert price.input_nanos > 0 < price.output_nanos
