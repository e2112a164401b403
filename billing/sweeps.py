"""What keeps money true off the path. Each part may run often, twice, or at once."""

import logging
from collections.abc import Callable
from typing import Final

from billing.credits import expire_credits
from billing.invoices.fees import collect_fees
from billing.late import correct_late_settlements
from billing.limits import follow_time_zones
from billing.plans import give_what_plans_include
from billing.watching import forget_counters, tell_crossings, watch_velocity

logger = logging.getLogger(__name__)

PARTS: Final[dict[str, Callable[[], int]]] = {
    "late settlements": correct_late_settlements,
    "expired credits": expire_credits,
    "included credits and limits": give_what_plans_include,
    "due fees": collect_fees,
    "moved time zones": follow_time_zones,
    "crossed thresholds": tell_crossings,
    "racing keys": watch_velocity,
    "old counters": forget_counters,
}


def sweep_money() -> dict[str, int]:
    """Answers what each part did; one that fails does not keep the others from their work."""
    done = {}
    for name, part in PARTS.items():
        try:
            done[name] = part()
        except Exception:
            logger.exception("Sweeping %s failed", name)
    return done
