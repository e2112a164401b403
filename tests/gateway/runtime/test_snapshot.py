from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from billing.estimation import SideCorrection, prompt_bound
from billing.estimation.estimates import RULE_VERSION
from billing.models import CountCorrection
from gateway.models import Model, Route, Vendor
from gateway.runtime import snapshot
from gateway.runtime.snapshot import RouteTo, load_snapshot

ASKED = {"messages": [{"role": "user", "content": "benchmark"}]}


def route_of(vendor_name: str) -> RouteTo:
    routes = load_snapshot().models["small"].routes
    return next(route for route in routes if route.vendor.name == vendor_name)


def accepted(version: int, **sides: int) -> CountCorrection:
    return CountCorrection.objects.create(
        vendor="north",
        vendor_model="m",
        version=version,
        family="qwen2.5",
        rule_version=RULE_VERSION,
        state="accepted",
        decided_at=timezone.now() - timedelta(minutes=1),
        **sides,
    )


@pytest.fixture
def routes(db) -> None:
    model = Model.objects.create(name="small", family="qwen2.5")
    for name in ("north", "south"):
        vendor = Vendor.objects.create(name=name, base_url="http://127.0.0.1:9/v1")
        Route.objects.create(model=model, vendor=vendor, vendor_model="m")


def test_a_catalog_that_changes_meanwhile_is_read_as_it_was(committed, monkeypatch) -> None:
    """Half of a change would be a model without its routes."""

    def add_a_model() -> None:
        vendor = Vendor.objects.create(name="late", base_url="http://127.0.0.1:9/v1")
        model = Model.objects.create(name="late")
        Route.objects.create(model=model, vendor=vendor, vendor_model="m")
        connection.close()

    def meanwhile():
        with ThreadPoolExecutor() as others:
            others.submit(add_a_model).result()
        return {}

    monkeypatch.setattr(snapshot, "all_in_force", meanwhile)
    assert "late" not in load_snapshot().models
    monkeypatch.undo()
    assert len(load_snapshot().models["late"].routes) == 1
    Route.objects.filter(model__name="late").delete()
    Model.objects.filter(name="late").delete()
    Vendor.objects.filter(name="late").delete()


@pytest.mark.usefixtures("routes")
def test_a_route_knows_the_newest_correction_of_its_vendors_model() -> None:
    accepted(1, prompt_offset=500)
    accepted(2, prompt_offset=40)
    corrected = route_of("north").correction
    assert corrected is not None
    assert (corrected.version, corrected.prompt) == (2, SideCorrection(1_000, 40))
    assert route_of("south").correction is None


@pytest.mark.usefixtures("routes")
@pytest.mark.parametrize(
    ("sides", "more"), [({"prompt_offset": 40}, 40), ({"prompt_offset": -5}, 0), ({}, 0)]
)
def test_a_hold_bounds_what_the_corrected_count_can_be(sides, more) -> None:
    accepted(1, **sides)
    plain = prompt_bound(ASKED, model="m", family="qwen2.5")
    bound = prompt_bound(
        ASKED, model="m", family="qwen2.5", correction=route_of("north").correction
    )
    assert bound == plain + more
