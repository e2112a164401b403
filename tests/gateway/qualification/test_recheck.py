"""The schedule: what is due, in which order, and at which cost."""

from datetime import timedelta

import pytest
import time_machine
from django.db import connection
from django.utils import timezone

from gateway.models import Qualification, Vendor, VendorCheck
from gateway.qualification import recheck, standing
from gateway.qualification.bounds import Bounds
from gateway.qualification.cost import DAY_TOKENS
from gateway.qualification.gate import state_of
from gateway.qualification.making import CHECK_LOCK
from gateway.qualification.recheck import recheck_due
from tests.gateway.qualification.conftest import made_vendor

pytestmark = pytest.mark.django_db

BOUNDS = Bounds(call_s=2.0, run_s=10.0, stop_s=0.5)
HOUR = timedelta(hours=1)


def due(after: timedelta = timedelta(0)) -> list[str]:
    """The models that a check was made of then, until nothing was due any more."""
    before = set(VendorCheck.objects.values_list("pk", flat=True))
    with time_machine.travel(timezone.now() + after):
        while recheck_due(bounds=BOUNDS):
            assert VendorCheck.objects.count() < 10
    made = VendorCheck.objects.exclude(pk__in=before).order_by("pk")
    return list(made.values_list("vendor_model", flat=True))


def test_a_vendor_that_must_qualify_does_so_by_itself(clever):
    vendor = made_vendor(clever.base_url, "echo", credential="vk-plain-1")
    assert due() == ["echo"]
    vendor.refresh_from_db()
    assert state_of(vendor) == "qualified"
    check = VendorCheck.objects.get()
    assert (check.passed, check.base_url) == (True, clever.base_url)
    assert [entry["id"] for entry in check.report["checks"]][:3] == ["arithmetic", "json", "stream"]
    assert clever.seen[0][b"authorization"] == b"Bearer vk-plain-1"
    assert "vk-plain-1" not in str(check.report)


def test_what_is_well_is_asked_once_a_day(clever):
    made_vendor(clever.base_url, "echo")
    assert due() == ["echo"]
    assert due(23 * HOUR) == []
    assert due(24 * HOUR) == ["echo"]


def test_what_is_not_well_is_asked_once_an_hour(clever):
    clever.is_ill = True
    vendor = made_vendor(clever.base_url, "echo")
    assert due() == ["echo"]
    assert due() == []
    clever.is_ill = False
    assert due(HOUR) == ["echo"]
    vendor.refresh_from_db()
    assert state_of(vendor) == "unqualified"
    assert due(2 * HOUR) == ["echo"]  # passed, but not twice yet
    vendor.refresh_from_db()
    assert state_of(vendor) == "qualified"
    assert due(3 * HOUR) == []


def test_a_qualified_vendor_that_fails_is_asked_sooner_and_loses(clever):
    vendor = made_vendor(clever.base_url, "echo")
    due()
    clever.is_ill = True
    states = []
    for hours in (24, 25, 26):
        due(hours * HOUR)
        vendor.refresh_from_db()
        states.append(str(state_of(vendor)))
    assert states == ["qualified", "qualified", "unqualified"]


def test_one_call_checks_one_model_the_one_that_waits_longest(clever):
    made_vendor(clever.base_url, "echo", "echo-reasoning")
    assert recheck_due(bounds=BOUNDS) == 1
    assert due() == ["echo-reasoning"]
    VendorCheck.objects.filter(vendor_model="echo").update(
        finished_at=timezone.now() + timedelta(minutes=1)
    )
    assert due(25 * HOUR) == ["echo-reasoning", "echo"]


@pytest.mark.parametrize(
    "fields",
    [
        {"qualification": Qualification.WAIVED},
        {"is_active": False},
        {"disabled_at": timezone.now(), "disabled_reason": "its bill"},
    ],
)
def test_who_is_left_alone(clever, fields):
    made_vendor(clever.base_url, "echo", **fields)
    assert due() == []
    assert clever.asked == 0


def test_a_vendor_without_models_is_left_alone(clever):
    made_vendor(clever.base_url)
    assert due() == []


def test_an_override_does_not_stop_the_checks(clever):
    made_vendor(clever.base_url, "echo", override_reason="a trial")
    assert due() == ["echo"]


class TestCost:
    def spent(self, vendor: Vendor, tokens: int, ago: timedelta) -> None:
        at = timezone.now() - ago
        VendorCheck.objects.create(
            vendor=vendor,
            vendor_model="other",
            base_url=vendor.base_url,
            started_at=at,
            finished_at=at,
            spent_tokens=tokens,
            report={},
        )

    def test_a_vendor_that_cost_enough_today_is_left_alone(self, clever):
        vendor = made_vendor(clever.base_url, "echo")
        self.spent(vendor, DAY_TOKENS - BOUNDS.tokens + 1, ago=23 * HOUR)
        assert due() == []
        assert clever.asked == 0

    def test_what_it_cost_yesterday_is_forgotten(self, clever):
        vendor = made_vendor(clever.base_url, "echo")
        self.spent(vendor, DAY_TOKENS, ago=25 * HOUR)
        self.spent(vendor, DAY_TOKENS - BOUNDS.tokens, ago=HOUR)
        assert due() == ["echo"]

    def test_one_vendors_cost_is_not_anothers(self, clever):
        self.spent(
            made_vendor(clever.base_url, "echo-reasoning", name="dear"),
            DAY_TOKENS,
            ago=HOUR,
        )
        made_vendor(clever.base_url, "echo")
        assert due() == ["echo"]


def test_two_at_a_time_are_one(clever):
    """Another session holds the lock, as another worker's would."""
    import psycopg

    settings = connection.get_connection_params()
    names = ("dbname", "user", "password", "host", "port")
    with psycopg.connect(**{n: settings[n] for n in names if n in settings}) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [CHECK_LOCK])
        made_vendor(clever.base_url, "echo")
        assert recheck_due(bounds=BOUNDS) == 0
        other.execute("SELECT pg_advisory_unlock(%s)", [CHECK_LOCK])
    assert due() == ["echo"]


def test_the_lock_is_given_back_after_a_failure(clever, monkeypatch):
    made_vendor(clever.base_url, "echo")
    monkeypatch.setattr(recheck, "keep", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        recheck_due(bounds=BOUNDS)
    monkeypatch.setattr(recheck, "keep", standing.keep)
    assert due() == ["echo"]
