import pytest
from django.core.management import CommandError, call_command

from billing.models import Account
from keys.models import AuditAction, AuditEvent, Tenant

pytestmark = pytest.mark.django_db


def test_makes_a_tenant_with_an_empty_wallet(capsys):
    call_command("create_tenant", name="Acme Inc", slug="acme", currency="EUR")
    tenant = Tenant.objects.get(slug="acme")
    assert (tenant.name, tenant.currency, tenant.state) == ("Acme Inc", "EUR", "active")
    wallet = Account.objects.get(tenant=tenant)
    assert (wallet.kind, wallet.currency, wallet.posted_nanos) == ("wallet", "EUR", 0)
    assert AuditEvent.objects.get().action == AuditAction.TENANT_CREATED
    assert capsys.readouterr().out == "Made the tenant acme with an empty wallet in EUR.\n"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"slug": "a b"}, "A slug is letters"),
        ({"slug": "s" * 51}, "at most 50"),
        ({"name": " "}, "A name has"),
        ({"currency": "usd"}, "three capital letters"),
        ({"time_zone": "Mars/Olympus"}, "'Mars/Olympus' is no time zone"),
    ],
)
def test_what_cannot_be_is_refused_and_makes_nothing(changed, words):
    with pytest.raises(CommandError, match=words):
        call_command("create_tenant", **{"name": "Acme", "slug": "acme", **changed})
    assert not Tenant.objects.exists()


def test_its_days_begin_where_it_is():
    call_command("create_tenant", name="Acme", slug="acme", time_zone="America/Sao_Paulo")
    assert Tenant.objects.get().time_zone == "America/Sao_Paulo"


def test_slug_is_taken_once():
    call_command("create_tenant", name="Acme", slug="acme")
    with pytest.raises(CommandError, match="There is a tenant 'acme' already"):
        call_command("create_tenant", name="Other", slug="acme")
    assert Tenant.objects.get().name == "Acme"
