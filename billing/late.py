"""The truth that comes after the sweep has settled an exchange in its gateway's name.

A gateway that was frozen, cut off or killed before its spool was sent tells late what an exchange
cost. `farthing_settle` keeps that and touches nothing; here the wallet is corrected by the
difference to what was charged, once, as an adjustment with a reason. It is counted in no spend
limit, as no adjustment is.
"""

import logging
from typing import Final
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from billing.adjustments import adjust
from billing.ids import request_id
from billing.locks import lock_wallet
from billing.messages import tell
from billing.models import (
    Account,
    Adjustment,
    Charge,
    Exchange,
    LateSettlement,
    MessageCategory,
    NoticeKind,
)
from billing.money import text_from_nanos
from billing.notices import notify_staff
from keys.models import Tenant

logger = logging.getLogger(__name__)

CORRECTIONS_A_SWEEP: Final = 500
ACTOR: Final = "settlement"
TOLD: Final = "a request was settled before its gateway could tell of it; the charge was corrected"


def correct_late_settlements() -> int:
    """Correct what has come; answers how many. One that fails is tried again by the next sweep."""
    due = LateSettlement.objects.filter(corrected_at=None).order_by("received_at")
    done = 0
    for exchange_id in due.values_list("pk", flat=True)[:CORRECTIONS_A_SWEEP]:
        try:
            done += correct(exchange_id)
        except Exception:
            logger.exception("Exchange %s could not be corrected", exchange_id)
    return done


@transaction.atomic
def correct(exchange_id: UUID) -> bool:
    """Whether it was corrected now. The wallet's lock, taken first, keeps a second one waiting."""
    exchange = Exchange.objects.select_related("charge").get(id=exchange_id)
    wallet = _locked_wallet(exchange)
    late = LateSettlement.objects.select_for_update().get(pk=exchange_id)
    if late.corrected_at is not None:
        return False
    cost_nanos = int(late.settlement["cost_nanos"])
    moved_nanos = 0 if wallet is None else _difference(cost_nanos, exchange.charge, wallet)
    late.moved_nanos = moved_nanos
    late.adjustment = _adjusted(exchange, moved_nanos)
    late.corrected_at = timezone.now()
    late.save(update_fields=["moved_nanos", "adjustment", "corrected_at"])
    _say(exchange, cost_nanos, moved_nanos)
    return True


def _locked_wallet(exchange: Exchange) -> Account | None:
    try:
        return lock_wallet(exchange.tenant_id, exchange.currency)
    except Account.DoesNotExist:
        return None  # a test key's exchange costs nothing


def _difference(cost_nanos: int, charge: Charge, wallet: Account) -> int:
    """What is to be taken, or given back (below zero).

    Never more than is free: as for an overrun, the operator bears the rest.
    """
    if cost_nanos < charge.charge_nanos:
        return cost_nanos - charge.charge_nanos
    more_nanos = max(cost_nanos - charge.charge_nanos - charge.shortfall_nanos, 0)
    return min(more_nanos, max(wallet.available_nanos, 0))


def _adjusted(exchange: Exchange, moved_nanos: int) -> Adjustment | None:
    """Above the threshold of adjustments it waits for a second person, like any other."""
    if moved_nanos == 0:
        return None
    tenant = Tenant.objects.get(pk=exchange.tenant_id)
    reason = f"{request_id(exchange.id)} was settled before its gateway could tell of it"
    return adjust(tenant, -moved_nanos, actor=ACTOR, reason=reason)


def _say(exchange: Exchange, cost_nanos: int, moved_nanos: int) -> None:
    charged = text_from_nanos(exchange.charge.charge_nanos)
    more = f"cost {text_from_nanos(cost_nanos)}, charged {charged}, moved "
    notify_staff(
        NoticeKind.LATE_SETTLEMENT,
        exchange.id,
        exchange.tenant_id,
        more + text_from_nanos(moved_nanos),
    )
    if moved_nanos:
        tell(
            exchange.tenant_id,
            MessageCategory.CORRECTION,
            TOLD,
            user_status=exchange.status_code,
            exchange_id=exchange.id,
            nanos=moved_nanos,
            currency=exchange.currency,
            is_test=exchange.is_test,
        )
