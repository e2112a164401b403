"""Which decision is open to a vendor in which state."""

import pytest
from django.utils import timezone

from gateway.models import Qualification
from gateway.qualification.acts import BY_NAME, VendorMovedError, act_on, available_acts
from gateway.qualification.standing import BadReasonError
from keys.models import AuditEvent
from tests.gateway.qualification.conftest import made_vendor

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:1/v1"
DISABLED = {"disabled_reason": "its bill"}


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, "override disable"),
        ({"qualification": Qualification.WAIVED}, "disable"),
        ({"qualified_base_url": URL}, "disable"),
        ({"override_reason": "a trial"}, "withdraw disable"),
        ({"override_reason": "a trial", "qualified_base_url": URL}, "withdraw disable"),
        (DISABLED, "enable"),
        ({**DISABLED, "override_reason": "a trial"}, "enable withdraw"),
        ({"is_active": False, "override_reason": "a trial"}, ""),
        ({**DISABLED, "is_active": False}, ""),
    ],
)
def test_what_is_open_in_which_state(fields, names):
    if "disabled_reason" in fields:
        fields = {**fields, "disabled_at": timezone.now()}
    vendor = made_vendor(URL, **fields)
    assert " ".join(act.name for act in available_acts(vendor)) == names


def test_an_act_is_done_once_and_then_not_open():
    vendor = made_vendor(URL)
    act_on(vendor, BY_NAME["disable"], actor="dora", reason="its bill")
    with pytest.raises(VendorMovedError, match="Disable is not open to acme now"):
        act_on(vendor, BY_NAME["disable"], actor="erin", reason="another")
    vendor.refresh_from_db()
    assert vendor.disabled_reason == "its bill"
    assert AuditEvent.objects.filter(action="vendor:disabled").count() == 1


@pytest.mark.parametrize("name", ["override", "disable"])
def test_without_a_reason_nothing_is_done(name):
    vendor = made_vendor(URL)
    with pytest.raises(BadReasonError):
        act_on(vendor, BY_NAME[name], actor="dora", reason=" ")
    vendor.refresh_from_db()
    assert (vendor.disabled_at, vendor.override_reason) == (None, "")
    assert not AuditEvent.objects.filter(subject="acme").exists()
