import pytest
from django.core.management import CommandError, call_command

from billing.audit import audit
from billing.models import Account, Payment, Transfer
from keys.models import AuditAction, AuditEvent

pytestmark = pytest.mark.django_db


def balance_of(tenant) -> int:
    return Account.objects.get(tenant=tenant, kind="wallet").posted_nanos


@pytest.fixture
def acme(world):
    return world.tenant("Acme", balance="0")


def top_up(tenant, amount="10.00", payment="p-1", **options) -> None:
    call_command("top_up", tenant=tenant.slug, amount=amount, payment=payment, **options)


def test_credits_and_says_the_balance(acme, capsys):
    top_up(acme, "10.000000001", reason="invoice 7")
    assert capsys.readouterr().out == (
        f"Credited 10.000000001 USD to {acme.slug}.\nIts balance is 10.000000001 USD.\n"
    )
    assert balance_of(acme) == 10_000_000_001
    event = AuditEvent.objects.get(action=AuditAction.WALLET_TOPPED_UP)
    assert (event.actor, event.subject, event.reason) == (
        "manage.py top_up",
        "p-1",
        "invoice 7",
    )
    assert audit().is_clean


def test_same_payment_again_says_so_and_credits_nothing(acme, capsys):
    top_up(acme)
    top_up(acme)
    assert "was credited before" in capsys.readouterr().out
    assert balance_of(acme) == 10_000_000_000
    assert (Payment.objects.count(), Transfer.objects.count()) == (1, 1)


def test_another_amount_under_the_same_id_is_refused(acme):
    top_up(acme)
    with pytest.raises(CommandError, match=r"10\.000000000 USD to .*another payment"):
        top_up(acme, "11.00")
    assert balance_of(acme) == 10_000_000_000


def test_another_tenant_under_the_same_id_is_refused(acme, world):
    other = world.tenant("Other", balance="0")
    top_up(acme)
    with pytest.raises(CommandError, match="another payment"):
        top_up(other)
    assert balance_of(other) == 0


@pytest.mark.parametrize(
    "amount",
    ["0", "-1", "ten", "", "NaN", "Infinity", "0.0000000001", "1000000000.1", f"1.{'0' * 40}1"],
)
def test_what_is_no_amount_is_refused_and_credits_nothing(acme, amount):
    with pytest.raises(CommandError, match="amount"):
        top_up(acme, amount)
    assert balance_of(acme) == 0


@pytest.mark.parametrize("payment", ["", "  ", "p" * 201])
def test_payment_needs_an_id(acme, payment):
    with pytest.raises(CommandError, match="1 to 200 characters"):
        top_up(acme, payment=payment)
    assert not Payment.objects.exists()


def test_unknown_tenant_is_named(db):
    with pytest.raises(CommandError, match="There is no tenant 'nobody'"):
        call_command("top_up", tenant="nobody", amount="1", payment="p")
