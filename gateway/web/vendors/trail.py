"""What people and checks did to a vendor, from the audit trail."""

from dataclasses import dataclass

from gateway.models import Vendor
from keys.models import AuditAction, AuditEvent

TRAIL_EVENTS = 20
WORDS = {
    AuditAction.VENDOR_QUALIFIED: "Qualified",
    AuditAction.VENDOR_UNQUALIFIED: "Lost its qualification",
    AuditAction.VENDOR_DISABLED: "Disabled",
    AuditAction.VENDOR_ENABLED: "Enabled",
    AuditAction.VENDOR_OVERRIDDEN: "Let in although not qualified",
    AuditAction.VENDOR_OVERRIDE_WITHDRAWN: "Override withdrawn",
    AuditAction.VENDOR_CHECK_ASKED: "Check asked for",
}


@dataclass(frozen=True, slots=True)
class TrailLine:
    event: AuditEvent

    @property
    def words(self) -> str:
        words = WORDS[AuditAction(self.event.action)]
        model = self.event.detail.get("model")
        return f"{words}: {model}" if model else words


def trail_of(vendor: Vendor) -> list[TrailLine]:
    """The newest acts on it, which belong to no tenant."""
    events = AuditEvent.objects.filter(tenant_id=None, subject=vendor.name, action__in=list(WORDS))
    return [TrailLine(event) for event in events[:TRAIL_EVENTS]]
