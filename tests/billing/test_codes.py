from datetime import timedelta

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone
from time_machine import travel

from billing.audit import audit
from billing.codes import make_code, redeem_code
from billing.errors import BadCode
from billing.models import RedemptionCode
from keys.models import AuditEvent
from tests.billing.acts import DAY, UNIT, credits_of, wallet_of

pytestmark = pytest.mark.django_db


def a_code(units: int = 5, **changes):
    options = {"expires_at": timezone.now() + DAY, "actor": "staff", **changes}
    return make_code(units * UNIT, "USD", **options)


def test_a_code_tops_the_wallet_up_once(world) -> None:
    tenant, made = world.tenant(balance="0"), a_code()
    redeem_code(tenant, made.text, actor="alice")
    assert wallet_of(tenant).posted_nanos == 5 * UNIT
    for who in (tenant, world.tenant("Other", "0")):
        with pytest.raises(BadCode):
            redeem_code(who, made.text, actor="alice")
    assert wallet_of(tenant).posted_nanos == 5 * UNIT
    assert AuditEvent.objects.filter(action="code:redeemed").count() == 1
    assert audit().is_clean


def test_a_code_may_grant_credit_that_expires(world) -> None:
    tenant, made = world.tenant(balance="0"), a_code(credit_days=30)
    redeem_code(tenant, made.text, actor="alice")
    assert (credits_of(tenant), wallet_of(tenant).posted_nanos) == ([(5 * UNIT, 0)], 0)


@pytest.mark.parametrize("typed", [str.lower, lambda text: text.replace("-", " "), str.strip])
def test_a_code_is_read_as_people_type_it(world, typed) -> None:
    tenant, made = world.tenant(balance="0"), a_code()
    redeem_code(tenant, typed(made.text.replace("0", "O").replace("1", "I")), actor="alice")
    assert wallet_of(tenant).posted_nanos == 5 * UNIT


def test_a_code_stands_nowhere_in_clear() -> None:
    made = a_code()
    assert len(made.text.replace("-", "")) == 20
    row = RedemptionCode.objects.values().get()
    assert made.text not in str(row)
    assert len(bytes(row["code_hash"])) == 32
    assert made.text not in repr(made)


def test_an_expired_code_credits_nothing(world) -> None:
    tenant, made = world.tenant(balance="0"), a_code()
    with travel(timezone.now() + 2 * DAY, tick=False), pytest.raises(BadCode):
        redeem_code(tenant, made.text, actor="alice")
    assert wallet_of(tenant).posted_nanos == 0
    assert RedemptionCode.objects.get().redeemed_at is None


@pytest.mark.parametrize("text", ["", "ABCDE-FGHJK", "A" * 1_000_000, "ÄÖÜ\x00"])
def test_an_unknown_code_says_no_more_than_a_used_one(world, text) -> None:
    with pytest.raises(BadCode, match="This code is unknown, used or expired"):
        redeem_code(world.tenant(), text, actor="alice")


def test_a_code_of_another_currency_stays_unused(world) -> None:
    tenant = world.tenant(balance="0")
    made = make_code(1, "EUR", expires_at=timezone.now() + DAY, actor="staff")
    with pytest.raises(BadCode):
        redeem_code(tenant, made.text, actor="alice")
    assert RedemptionCode.objects.get().redeemed_at is None


@pytest.mark.parametrize(
    ("nanos", "changes"),
    [(0, {}), (1, {"credit_days": 0}), (1, {"expires_at": timezone.now() - timedelta(1)})],
)
def test_a_code_is_worth_something(nanos, changes) -> None:
    options = {"expires_at": timezone.now() + DAY, **changes}
    with pytest.raises(ValueError, match="worth something"):
        make_code(nanos, "USD", actor="staff", **options)


def test_a_redeemed_code_never_changes(world) -> None:
    made = a_code()
    redeem_code(world.tenant(), made.text, actor="alice")
    with pytest.raises(DatabaseError), transaction.atomic():
        RedemptionCode.objects.update(redeemed_at=None, redeemed_by=None)
