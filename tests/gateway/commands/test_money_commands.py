"""Commands on wallets other than `top_up`: each says what it did, or changes nothing."""

import io

import pytest
from django.core.management import CommandError, call_command

from billing.audit import audit
from billing.models import Adjustment, Credit, RedemptionCode
from tests.billing.acts import UNIT, credits_of, held, wallet_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _clean_audit():
    yield
    assert audit().differences == ()


def said(capsys) -> str:
    return capsys.readouterr().out.strip()


def test_a_credit_limit_is_set_and_taken_away(world, capsys) -> None:
    tenant = world.tenant(balance="1")
    call_command("set_credit_limit", tenant=tenant.slug, amount="5", reason="invoiced")
    assert said(capsys) == (
        f"{tenant.slug} may owe 5.000000000 USD.\nAvailable now: 6.000000000 USD."
    )
    held(tenant, 2 * UNIT)
    with pytest.raises(CommandError, match="in use"):
        call_command("set_credit_limit", tenant=tenant.slug, amount="0", reason="risk")
    assert wallet_of(tenant).credit_limit_nanos == 5 * UNIT


def test_credit_is_granted_once_by_its_id(world, capsys) -> None:
    tenant = world.tenant(balance="0")
    options = {"tenant": tenant.slug, "amount": "5", "expires": "2099-01-01", "grant_id": "spring"}
    call_command("grant_credit", **options)
    assert said(capsys) == f"Granted 5.000000000 USD to {tenant.slug} until 2099-01-01 00:00."
    call_command("grant_credit", **options)
    assert said(capsys) == "spring was granted before. Nothing was granted now."
    assert credits_of(tenant) == [(5 * UNIT, 0)]
    with pytest.raises(CommandError, match="time to come"):
        call_command("grant_credit", **{**options, "expires": "2020-01-01", "grant_id": "x"})
    assert Credit.objects.count() == 1


def test_a_code_is_made_and_redeemed_once(world, capsys, monkeypatch) -> None:
    tenant = world.tenant(balance="0")
    call_command("make_code", amount="5", expires="2099-01-01")
    code = said(capsys)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{code}\n"))
    call_command("redeem_code", tenant=tenant.slug)
    assert said(capsys) == f"Credited 5.000000000 USD to {tenant.slug}."
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{code}\n"))
    with pytest.raises(CommandError, match="unknown, used or expired"):
        call_command("redeem_code", tenant=tenant.slug)
    assert wallet_of(tenant).posted_nanos == 5 * UNIT


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires": "2020-01-01"}, "time to come"),
        ({"credit_days": 0}, "1 to 3650 days"),
        ({"amount": "0"}, "no amount above zero"),
    ],
)
def test_a_code_that_is_worth_nothing_is_not_made(options, words) -> None:
    with pytest.raises(CommandError, match=words):
        call_command("make_code", **{"amount": "5", "expires": "2099-01-01", **options})
    assert not RedemptionCode.objects.exists()


def test_two_people_move_a_large_amount(world, capsys) -> None:
    tenant = world.tenant(balance="1")
    ann, bob = (world.person(name, is_staff=True).email for name in ("ann", "bob"))
    why = ("--amount", "500", "--reason", "moved here")
    call_command("adjust_wallet", "give", "--tenant", tenant.slug, *why, "--by", ann)
    adjustment = Adjustment.objects.get()
    waits = f"{adjustment} proposed: {tenant.slug} 500.000000000 USD, by {ann}"
    assert said(capsys) == waits
    call_command("adjust_wallet", "list")
    assert said(capsys) == waits
    with pytest.raises(CommandError, match="cannot approve"):
        call_command("adjust_wallet", "approve", str(adjustment.pk), "--by", ann.upper())
    call_command("adjust_wallet", "approve", str(adjustment.pk), "--by", bob)
    assert said(capsys) == f"{adjustment} posted: {tenant.slug} 500.000000000 USD, by {bob}"
    assert wallet_of(tenant).posted_nanos == 501 * UNIT


def test_a_payment_is_refunded_in_part(world, capsys) -> None:
    tenant = world.tenant(balance="10")
    ann = world.person("ann", is_staff=True).email
    why = ("--amount", "4", "--reason", "asked", "--by", ann)
    call_command("adjust_wallet", "refund", "--payment", f"{tenant.slug}-first", *why)
    assert " posted: " in said(capsys)
    assert wallet_of(tenant).posted_nanos == 6 * UNIT
    call_command("adjust_wallet", "take", "--tenant", tenant.slug, *why)
    assert wallet_of(tenant).posted_nanos == 2 * UNIT
    for act in (("refund", "--payment", "gone"), ("take", "--tenant", tenant.slug)):
        with pytest.raises(CommandError):
            call_command("adjust_wallet", *act, *why)
    assert wallet_of(tenant).posted_nanos == 2 * UNIT


def test_only_staff_adjust(world) -> None:
    tenant = world.tenant(balance="10")
    owner = world.person("owner", tenant).email
    with pytest.raises(CommandError, match="nobody on the staff"):
        call_command(
            "adjust_wallet",
            *("give", "--tenant", tenant.slug, "--amount", "1", "--reason", "x", "--by", owner),
        )
    assert wallet_of(tenant).posted_nanos == 10 * UNIT
