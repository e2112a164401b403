"""Who takes live traffic: pure functions of the vendor's row."""

from dataclasses import dataclass
from enum import StrEnum

from gateway.models import Qualification, Vendor


class VendorState(StrEnum):
    UNQUALIFIED = "unqualified"
    QUALIFIED = "qualified"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Admission:
    """`reason` is a sentence for staff, whichever way it went."""

    is_open: bool
    reason: str


def state_of(vendor: Vendor) -> VendorState:
    """By checks and people alone; what else opens the gate is in `admission`."""
    if vendor.disabled_at is not None:
        return VendorState.DISABLED
    if vendor.qualified_base_url and vendor.qualified_base_url == vendor.base_url:
        return VendorState.QUALIFIED
    return VendorState.UNQUALIFIED


def admission(vendor: Vendor) -> Admission:
    """A vendor that people disabled is out, whatever else is true of it."""
    state = state_of(vendor)
    if state is VendorState.DISABLED:
        return Admission(is_open=False, reason=f"Disabled: {vendor.disabled_reason}.")
    if state is VendorState.QUALIFIED:
        return Admission(is_open=True, reason="Its checks passed.")
    if vendor.override_reason:
        return Admission(is_open=True, reason=f"Not qualified; let in: {vendor.override_reason}.")
    if vendor.qualification == Qualification.WAIVED:
        return Admission(
            is_open=True, reason=f"Not qualified; need not be: {vendor.waiver_reason}."
        )
    return Admission(is_open=False, reason="Not qualified.")


def takes_live_traffic(vendor: Vendor) -> bool:
    return admission(vendor).is_open
