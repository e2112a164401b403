"""What an act on a vendor brings about, in words, before it is done."""

from copy import copy

from gateway.models import Route, Vendor
from gateway.qualification.gate import admission, takes_live_traffic

NAMES_SHOWN = 5


def consequence_of(act: str, vendor: Vendor) -> str:
    match act:
        case "disable":
            return (
                f"From the next second no live request goes to it. {_left_out(vendor)} It stays so "
                "until somebody enables it: no check and no catalog file undoes it."
            )
        case "enable":
            return f"It is back to what else decides. {_then(vendor, 'disabled_at', None)}"
        case "withdraw":
            return _then(vendor, "override_reason", "")
        case _:
            return (
                "From the next second live requests go to it although its checks have not passed, "
                "and they are charged as usual. Its checks go on. No check undoes this: "
                "withdraw it when it is not needed any more."
            )


def _then(vendor: Vendor, field: str, value: object) -> str:
    """The admission that follows once the field has that value."""
    changed = copy(vendor)
    setattr(changed, field, value)
    after = admission(changed)
    if after.is_open:
        return f"Live requests go to it. {after.reason}"
    left_out = f" {_left_out(vendor)}" if takes_live_traffic(vendor) else ""
    return f"No live request goes to it. {after.reason}{left_out}"


def _left_out(vendor: Vendor) -> str:
    """Which models no other vendor would answer for."""
    routes = Route.objects.filter(model__is_active=True, vendor__is_active=True)
    ours = set(routes.filter(vendor=vendor).values_list("model__name", flat=True))
    others = routes.filter(model__name__in=ours).exclude(vendor=vendor)
    covered = {
        route.model.name
        for route in others.select_related("vendor", "model")
        if takes_live_traffic(route.vendor)
    }
    names = sorted(ours - covered)
    if not names:
        return "Its models have other routes." if ours else "No model leads to it."
    rest = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"Without another route, so answered with 503: {shown}{rest}. Nobody pays for that."
