"""The operator's page of counts: what nights found, and who may decide on a correction."""

import pytest
from django.utils import timezone

from billing.corrections import in_force, propose
from billing.estimation import Correction, SideCorrection
from billing.estimation.estimates import RULE_VERSION
from billing.models import CountComparison, CountCorrection
from keys.models import AuditEvent
from tests.web.conftest import confirmed, signed_in, text_of

pytestmark = pytest.mark.django_db
SIDE = {"sample_size": 120, "median_error": "0.0410", "p95_error": "0.2000", "bias": "0.0410"}


@pytest.fixture
def proposal() -> CountCorrection:
    found = Correction(
        version=0,
        family="qwen2.5",
        rule_version=RULE_VERSION,
        prompt=SideCorrection(1_042, 7),
        completion=SideCorrection(),
        prompt_error=None,
        completion_error=None,
    )
    assert propose("north", "qwen-x", found, 120)
    return CountCorrection.objects.get()


def a_night(**changes) -> CountComparison:
    fields = {
        "vendor": "north",
        "vendor_model": "qwen-x",
        "day": timezone.now().date(),
        "family": "qwen2.5",
        "rule_version": RULE_VERSION,
        "prompt": SIDE,
    }
    return CountComparison.objects.create(**{**fields, **changes})


def post(client, row: CountCorrection, act: str, reason: str = "it agrees"):
    return client.post(f"/staff/counting/{row.public_id}/{act}", {"reason": reason})


def test_only_staff_may_see_or_decide(acme, proposal) -> None:
    for path in ("/staff/counting", f"/staff/counting/{proposal.public_id}"):
        assert signed_in(acme.alice).get(path).status_code == 403
    assert post(confirmed(acme.alice), proposal, "accept").status_code == 403
    proposal.refresh_from_db()
    assert proposal.state == "proposed"


def test_who_decides_shows_again_who_it_is(acme, proposal) -> None:
    answer = post(signed_in(acme.dora), proposal, "accept")
    assert (answer.status_code, "reauthenticate" in answer["location"]) == (302, True)
    proposal.refresh_from_db()
    assert proposal.state == "proposed"


def test_without_a_night_the_page_says_when_there_is_one(acme) -> None:
    text = text_of(signed_in(acme.dora).get("/staff/counting"))
    assert "Nothing has been compared yet" in text
    assert "manage.py compare_counts" in text


def test_the_newest_night_of_each_model_is_shown_what_drifts_first(acme, proposal) -> None:
    a_night(day="2026-01-01", prompt={**SIDE, "sample_size": 77})
    a_night()
    a_night(vendor_model="a-model", prompt=None, completion=SIDE)
    a_night(vendor_model="z-model", is_drifting=True)
    text = text_of(signed_in(acme.dora).get("/staff/counting"))
    assert text.index("z-model") < text.index("qwen-x") < text.index("a-model")
    assert "120" in text
    assert "77" not in text
    assert "+4.1 %" in text
    assert "Reports more than usual" in text
    assert "Proposed: correction 1" in text


def test_a_proposal_shows_what_becomes_of_a_count(acme, proposal) -> None:
    a_night()
    text = text_of(signed_in(acme.dora).get(f"/staff/counting/{proposal.public_id}"))
    assert "1.042" in text
    assert "+7" in text
    assert "1,049" in text  # of a thousand tokens
    assert "Learnt from 120 requests" in text
    assert "Nobody has decided about it." in text


def test_accepting_puts_it_in_force_once(acme, proposal) -> None:
    client = confirmed(acme.dora)
    answer = post(client, proposal, "accept")
    assert (answer.status_code, answer["location"]) == (
        302,
        f"/staff/counting/{proposal.public_id}",
    )
    assert in_force("north", "qwen-x", timezone.now()) == proposal
    event = AuditEvent.objects.get(action="correction:accepted")
    assert (event.actor, event.reason) == (acme.dora.email, "it agrees")
    assert "In force" in text_of(client.get(f"/staff/counting/{proposal.public_id}"))

    again = post(client, proposal, "decline")
    assert (again.status_code, "Nothing was done" in text_of(again)) == (409, True)
    assert in_force("north", "qwen-x", timezone.now()) == proposal


def test_declining_and_withdrawing_leave_counts_as_they_are(acme, proposal) -> None:
    client = confirmed(acme.dora)
    assert post(client, proposal, "withdraw").status_code == 409
    assert post(client, proposal, "decline").status_code == 302
    assert in_force("north", "qwen-x", timezone.now()) is None


def test_withdrawing_what_is_in_force(acme, proposal) -> None:
    client = confirmed(acme.dora)
    post(client, proposal, "accept")
    assert post(client, proposal, "withdraw", "the vendor changed").status_code == 302
    held = in_force("north", "qwen-x", timezone.now())
    assert (held.version, held.prompt_per_mille, held.prompt_offset) == (2, 1_000, 0)
    text = text_of(client.get(f"/staff/counting/{held.public_id}"))
    assert "It changes nothing" in text


def test_without_a_reason_nothing_is_decided(acme, proposal) -> None:
    answer = post(confirmed(acme.dora), proposal, "accept", " ")
    assert (answer.status_code, "Give a reason" in text_of(answer)) == (422, True)
    proposal.refresh_from_db()
    assert proposal.state == "proposed"


@pytest.mark.parametrize("name", ["corr_0", "corr_", "inv_1", "corr_9999999999999999999", "x"])
def test_what_there_is_not_is_not_found(acme, name) -> None:
    assert signed_in(acme.dora).get(f"/staff/counting/{name}").status_code == 404


def test_an_act_that_there_is_not_is_not_found(acme, proposal) -> None:
    assert post(confirmed(acme.dora), proposal, "delete").status_code == 404
    assert signed_in(acme.dora).get(f"/staff/counting/{proposal.public_id}/accept").status_code == (
        405
    )
