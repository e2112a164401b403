import pytest
from django.core.management import CommandError, call_command

from keys.models import AuditAction, AuditEvent

pytestmark = pytest.mark.django_db


def test_moves_a_tenant_and_leaves_a_trail(world, capsys):
    tenant = world.tenant()
    call_command("set_time_zone", tenant=tenant.slug, time_zone="Asia/Tokyo", reason="they moved")
    tenant.refresh_from_db()
    assert tenant.time_zone == "Asia/Tokyo"
    event = AuditEvent.objects.get(action=AuditAction.TENANT_TIME_ZONE_SET)
    assert (event.tenant_id, event.reason) == (tenant.pk, "they moved")
    assert event.detail == {"from": "UTC", "to": "Asia/Tokyo"}
    assert capsys.readouterr().out == f"{tenant.slug} is in Asia/Tokyo.\n"


def test_what_is_no_zone_is_refused_and_changes_nothing(world):
    tenant = world.tenant()
    with pytest.raises(CommandError, match="'Mars/Olympus' is no time zone"):
        call_command("set_time_zone", tenant=tenant.slug, time_zone="Mars/Olympus", reason="x")
    tenant.refresh_from_db()
    assert tenant.time_zone == "UTC"
    assert not AuditEvent.objects.filter(action=AuditAction.TENANT_TIME_ZONE_SET).exists()
