"""What is kept is a visible choice with a visible end, and owners and admins make it."""

import pytest

from keys.models import AuditAction, AuditEvent, Tenant
from tests.web.conftest import signed_in, text_of


def stored(acme) -> tuple[str, int]:
    return Tenant.objects.values_list("transcript_policy", "transcript_days").get(pk=acme.tenant.pk)


def test_everybody_sees_what_is_kept_and_for_how_long(acme) -> None:
    for person in (acme.alice, acme.bob):
        assert "content, for 30 days" in text_of(signed_in(person).get("/transcripts"))


def test_an_owner_chooses_and_the_trail_names_her(acme) -> None:
    browser = signed_in(acme.alice)
    answer = browser.post("/transcripts", {"policy": "summaries", "days": "7"})
    assert (answer.status_code, answer["location"]) == (302, "/transcripts")
    assert stored(acme) == ("summaries", 7)
    assert "summaries, for 7 days" in text_of(browser.get("/transcripts"))
    event = AuditEvent.objects.get(
        tenant_id=acme.tenant.pk, action=AuditAction.TENANT_TRANSCRIPTS_SET
    )
    assert event.actor == acme.alice.email


def test_a_viewer_changes_nothing(acme) -> None:
    browser = signed_in(acme.bob)
    assert "Save" not in text_of(browser.get("/transcripts"))
    assert browser.post("/transcripts", {"policy": "nothing", "days": "1"}).status_code == 403
    assert stored(acme) == ("content", 30)


@pytest.mark.parametrize(
    "said", [{"policy": "all", "days": "7"}, {"policy": "content", "days": "0"}, {}]
)
def test_what_cannot_be_is_told_and_changes_nothing(acme, said) -> None:
    answer = signed_in(acme.alice).post("/transcripts", said)
    assert answer.status_code == 422
    assert stored(acme) == ("content", 30)


def test_another_tenants_choice_is_its_own(acme) -> None:
    signed_in(acme.charlie).post("/transcripts", {"policy": "nothing", "days": "1"})
    assert stored(acme) == ("content", 30)


def test_a_request_says_for_how_long_it_is_shown(acme) -> None:
    relayed = acme.relayed().hold().settle()
    page = signed_in(acme.alice).get(f"/requests/{relayed.public_id}")
    assert 'href="/transcripts"' in page.content.decode()
