"""What a tenant lets us keep, and the trail of saying so."""

import pytest

from keys.errors import BadTranscriptChoice
from keys.models import AuditAction, AuditEvent, Tenant
from keys.transcripts import DAYS_MAX, set_transcripts


def stored(tenant: Tenant) -> tuple[str, int]:
    return Tenant.objects.values_list("transcript_policy", "transcript_days").get(pk=tenant.pk)


def trail(tenant: Tenant) -> list[AuditEvent]:
    return list(
        AuditEvent.objects.filter(tenant_id=tenant.pk, action=AuditAction.TENANT_TRANSCRIPTS_SET)
    )


def test_a_tenant_begins_with_content_for_thirty_days(world) -> None:
    assert stored(world.tenant()) == ("content", 30)


def test_what_is_said_is_kept_with_its_trail(world) -> None:
    tenant = world.tenant()
    set_transcripts(tenant, "summaries", 7, actor="alice@example.test", reason="privacy")
    assert stored(tenant) == ("summaries", 7)
    (event,) = trail(tenant)
    assert (event.actor, event.reason) == ("alice@example.test", "privacy")
    assert event.detail == {
        "from": {"policy": "content", "days": 30},
        "to": {"policy": "summaries", "days": 7},
    }


def test_saying_the_same_again_leaves_no_trail(world) -> None:
    tenant = world.tenant()
    set_transcripts(tenant, "content", 30, actor="alice")
    assert trail(tenant) == []


@pytest.mark.parametrize(
    ("policy", "days"), [("all", 30), ("content", 0), ("content", DAYS_MAX + 1)]
)
def test_what_cannot_be_is_refused_and_changes_nothing(world, policy, days) -> None:
    tenant = world.tenant()
    with pytest.raises(BadTranscriptChoice):
        set_transcripts(tenant, policy, days, actor="alice")
    assert stored(tenant) == ("content", 30)
    assert trail(tenant) == []
