import pytest
from django.utils import timezone

from gateway.models import KEYLESS, Model, Qualification, Route, Vendor
from gateway.qualification.gate import VendorState, admission, state_of, takes_live_traffic
from gateway.runtime.snapshot import load_snapshot

URL = "http://127.0.0.1:1/v1"
REQUIRED = {"base_url": URL, "qualification": Qualification.REQUIRED}
DISABLED = {"disabled_at": timezone.now(), "disabled_reason": "its bill was wrong"}


@pytest.mark.parametrize(
    ("fields", "state", "is_open", "reason"),
    [
        ({}, "unqualified", False, "Not qualified."),
        ({"qualified_base_url": URL}, "qualified", True, "Its checks passed."),
        ({"qualified_base_url": f"{URL}/other"}, "unqualified", False, "Not qualified."),
        (
            {"override_reason": "a trial for Acme"},
            *("unqualified", True, "Not qualified; let in: a trial for Acme."),
        ),
        (
            {"qualification": Qualification.WAIVED},
            *("unqualified", True, "Not qualified; need not be: applied by catalog file."),
        ),
        (
            {**DISABLED, "qualified_base_url": URL, "override_reason": "a trial"},
            *("disabled", False, "Disabled: its bill was wrong."),
        ),
        (
            {**DISABLED, "qualification": Qualification.WAIVED},
            *("disabled", False, "Disabled: its bill was wrong."),
        ),
    ],
)
def test_gate_is_a_function_of_the_row(fields, state, is_open, reason):
    vendor = Vendor(name="acme", **{**REQUIRED, **fields})
    assert state_of(vendor) is VendorState(state)
    found = admission(vendor)
    assert (found.is_open, found.reason) == (is_open, reason)
    assert takes_live_traffic(vendor) is is_open


@pytest.mark.django_db
class TestSnapshot:
    def route(self, model: Model, name: str, **fields) -> None:
        vendor = Vendor.objects.create(
            name=name, credential=KEYLESS, **{"base_url": f"http://{name}.example/v1", **fields}
        )
        Route.objects.create(model=model, vendor=vendor, vendor_model=f"{name}-small")

    def vendors_of(self, model: str) -> list[str]:
        return [route.vendor.name for route in load_snapshot().models[model].routes]

    def test_routes_of_vendors_that_may_not_take_live_traffic_are_left_out(self):
        model = Model.objects.create(name="small")
        self.route(model, "plain")
        self.route(model, "strict", qualification=Qualification.REQUIRED)
        self.route(model, "let-in", qualification=Qualification.REQUIRED, override_reason="trial")
        self.route(model, "disabled", **DISABLED)
        assert self.vendors_of("small") == ["plain", "let-in"]
        Vendor.objects.filter(name="strict").update(qualified_base_url="http://strict.example/v1")
        assert self.vendors_of("small") == ["plain", "strict", "let-in"]

    def test_test_keys_reach_benchecho_though_it_is_disabled_for_live_ones(self):
        here, elsewhere = (Model.objects.create(name=name) for name in ("here", "elsewhere"))
        self.route(here, "benchecho", **DISABLED)
        self.route(elsewhere, "acme")
        models = load_snapshot().models
        assert models["here"].routes == ()
        assert models["here"].test_route.vendor_model == "benchecho-small"
        assert models["elsewhere"].test_route.vendor_model == "echo"
        assert models["elsewhere"].test_route.vendor.name == "benchecho"

    def test_without_benchecho_a_test_key_has_no_route(self):
        model = Model.objects.create(name="small")
        self.route(model, "acme")
        assert load_snapshot().models["small"].test_route is None
