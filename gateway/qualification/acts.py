"""What people may decide about a vendor, and in which state: commands and pages read one table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from django.db import transaction

from gateway.models import Vendor
from gateway.qualification import standing
from gateway.qualification.gate import VendorState, admission, state_of


class VendorMovedError(Exception):
    """The vendor's state does not allow the act any more. Nothing was done."""


class Decide(Protocol):
    """Raises BadReasonError."""

    def __call__(self, vendor: Vendor, *, actor: str, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class VendorAct:
    name: str
    label: str
    help: str
    decide: Decide
    is_open_to: Callable[[Vendor], bool]
    """Whether it would change anything. Nothing is decided about what no catalog file names."""


def _may_disable(vendor: Vendor) -> bool:
    return vendor.is_active and state_of(vendor) is not VendorState.DISABLED


def _may_enable(vendor: Vendor) -> bool:
    return vendor.is_active and state_of(vendor) is VendorState.DISABLED


def _may_override(vendor: Vendor) -> bool:
    """Where it alone opens the gate."""
    is_unqualified = state_of(vendor) is VendorState.UNQUALIFIED
    return vendor.is_active and is_unqualified and not admission(vendor).is_open


def _may_withdraw(vendor: Vendor) -> bool:
    return vendor.is_active and bool(vendor.override_reason)


ACTS: Final = (
    VendorAct(
        "override",
        "Override",
        "let it in although it is not qualified",
        standing.override,
        _may_override,
    ),
    VendorAct("enable", "Enable", "undo disable", standing.enable, _may_enable),
    VendorAct(
        "withdraw",
        "Withdraw override",
        "undo override",
        standing.withdraw_override,
        _may_withdraw,
    ),
    VendorAct(
        "disable",
        "Disable",
        "take it out of live traffic, whatever its checks say",
        standing.disable,
        _may_disable,
    ),
)
BY_NAME: Final = {act.name: act for act in ACTS}


def available_acts(vendor: Vendor) -> list[VendorAct]:
    return [act for act in ACTS if act.is_open_to(vendor)]


def act_on(vendor: Vendor, act: VendorAct, *, actor: str, reason: str) -> None:
    """Raises VendorMovedError and BadReasonError; then nothing was done."""
    with transaction.atomic():
        locked = Vendor.objects.select_for_update().get(pk=vendor.pk)
        if not act.is_open_to(locked):
            raise VendorMovedError(f"{act.label} is not open to {locked.name} now.")
        act.decide(locked, actor=actor, reason=reason)
