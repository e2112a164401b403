import pytest
from django.core.management import CommandError, call_command

from keys.models import AuditAction, AuditEvent

pytestmark = pytest.mark.django_db


def test_key_is_revoked_with_its_reason(world, capsys):
    acme = world.tenant("Acme", balance="0")
    key = world.key(acme).key
    call_command("revoke_key", key.public_id, tenant=acme.slug, reason="leaked")
    key.refresh_from_db()
    assert key.state == "revoked"
    assert capsys.readouterr().out == f"{key.masked} (notebooks) is revoked.\n"
    assert AuditEvent.objects.get(action=AuditAction.KEY_REVOKED).reason == "leaked"


def test_another_tenants_key_is_not_found_and_stays(world):
    acme, other = world.tenant("Acme", balance="0"), world.tenant("Other", balance="0")
    key = world.key(acme).key
    with pytest.raises(CommandError, match="There is no such key"):
        call_command("revoke_key", key.public_id, tenant=other.slug)
    key.refresh_from_db()
    assert key.state == "active"
