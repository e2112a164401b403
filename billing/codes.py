"""Redemption codes: money for whoever brings one, once. Stored is only what proves a code."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from billing.credits import grant_credit
from billing.errors import BadCode
from billing.ids import ALPHABET
from billing.models import RedemptionCode
from billing.money import text_from_nanos
from billing.wallets import top_up
from keys.models import AuditAction, Tenant
from keys.secrets import fingerprint
from keys.services import record

GROUPS: Final = 4
GROUP_CHARACTERS: Final = 5  # of 5 bits: 100 bits in all
TEXT_CHARACTERS_MAX: Final = 64

_LOOK_ALIKES: Final = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None, " ": None})


@dataclass(frozen=True, slots=True)
class MadeCode:
    """The only moment at which the code exists in clear."""

    code: RedemptionCode
    text: str = field(repr=False)


def make_code(
    amount_nanos: int,
    currency: str,
    *,
    expires_at: datetime,
    actor: str,
    credit_days: int | None = None,
) -> MadeCode:
    """`credit_days` None tops the wallet up; else it grants credit that lasts so long."""
    if amount_nanos <= 0 or expires_at <= timezone.now() or credit_days == 0:
        raise ValueError("A code is worth something, and expires later.")
    groups = (
        "".join(secrets.choice(ALPHABET) for _ in range(GROUP_CHARACTERS)) for _ in range(GROUPS)
    )
    text = "-".join(groups)
    with transaction.atomic():
        code = RedemptionCode.objects.create(
            code_hash=fingerprint(_plain(text), settings.KEY_PEPPERS[0]),
            last_four=text[-4:],
            amount_nanos=amount_nanos,
            currency=currency,
            credit_days=credit_days,
            expires_at=expires_at,
        )
        record(
            AuditAction.CODE_MADE,
            tenant_id=None,
            actor=actor,
            subject=_subject(code),
            detail={"amount": text_from_nanos(amount_nanos), "currency": currency},
        )
    return MadeCode(code, text)


def redeem_code(tenant: Tenant, text: str, *, actor: str) -> RedemptionCode:
    """Credit a code's worth, once, to whoever is first. Raises BadCode and says no more than that.

    The row is taken by one conditional statement; the payment's or grant's id, made of the code's,
    would refuse a second one still.
    """
    now = timezone.now()
    with transaction.atomic():
        hashes = [fingerprint(_plain(text), pepper) for pepper in settings.KEY_PEPPERS]
        found = RedemptionCode.objects.filter(code_hash__in=hashes, currency=tenant.currency)
        unused = found.filter(redeemed_at=None, expires_at__gt=now)
        if len(text) > TEXT_CHARACTERS_MAX or not unused.update(
            redeemed_at=now, redeemed_by=tenant
        ):
            raise BadCode("This code is unknown, used or expired, or of another currency.")
        code = found.get()
        _credit(tenant, code, now, actor)
        record(AuditAction.CODE_REDEEMED, tenant_id=tenant.pk, actor=actor, subject=_subject(code))
    return code


def _credit(tenant: Tenant, code: RedemptionCode, now: datetime, actor: str) -> None:
    subject = _subject(code)
    if code.credit_days is None:
        top_up(tenant, code.amount_nanos, payment_id=subject, actor=actor, reason=subject)
        return
    grant_credit(
        tenant,
        code.amount_nanos,
        grant_id=subject,
        expires_at=now + timedelta(days=code.credit_days),
        actor=actor,
        reason=subject,
    )


def _plain(text: str) -> str:
    """As typed by a person: any case, with or without hyphens, O for 0, I or L for 1."""
    return text.upper().translate(_LOOK_ALIKES)


def _subject(code: RedemptionCode) -> str:
    return f"redemption-code-{code.pk}"
