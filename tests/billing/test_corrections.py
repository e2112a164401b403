from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
import time_machine
from django.db import DatabaseError, transaction
from django.utils import timezone

from billing.corrections import all_in_force, decide, in_force, propose, value_of, withdraw
from billing.errors import BadCorrectionAct, CorrectionDecided
from billing.estimation import Correction, SideCorrection, estimate
from billing.estimation.estimates import RULE_VERSION
from billing.models import CountCorrection
from keys.models import AuditEvent

pytestmark = pytest.mark.django_db
FOUND = Correction(
    version=0,
    family="qwen2.5",
    rule_version=RULE_VERSION,
    prompt=SideCorrection(1_000, 12),
    completion=SideCorrection(1_100, 0),
    prompt_error=Decimal("0.0100"),
    completion_error=Decimal("0.0200"),
)
ASKED = {"messages": [{"role": "user", "content": "benchmark"}]}
SAID = {"choices": [{"message": {"role": "assistant", "content": "word " * 50}}]}


def proposed(found: Correction = FOUND, vendor: str = "north") -> CountCorrection:
    assert propose(vendor, "m", found, 120)
    return CountCorrection.objects.filter(vendor=vendor, state="proposed").get()


def accept(row: CountCorrection) -> CountCorrection:
    return decide(row.pk, accepts=True, actor="ann", reason="200 requests agree")


def test_a_proposal_changes_nothing_until_it_is_accepted() -> None:
    row = proposed()
    assert in_force("north", "m", timezone.now()) is None
    assert all_in_force() == {}

    accepted = accept(row)

    assert in_force("north", "m", timezone.now()) == accepted
    assert value_of(accepted) == replace(FOUND, version=1)
    assert all_in_force() == {("north", "m"): accepted}
    assert in_force("south", "m", timezone.now()) is None
    event = AuditEvent.objects.get(action="correction:accepted")
    assert (event.subject, event.actor, event.reason) == (
        row.public_id,
        "ann",
        "200 requests agree",
    )


def test_it_is_never_in_force_for_what_arrived_before() -> None:
    row = proposed()
    before = timezone.now()
    accept(row)
    assert in_force("north", "m", before) is None


def test_the_version_of_the_moment_counts_also_after_the_next() -> None:
    first = accept(proposed())
    between = timezone.now()
    second = accept(proposed(replace(FOUND, prompt=SideCorrection(1_500, 0))))
    assert (first.version, second.version) == (1, 2)
    assert in_force("north", "m", between) == first
    assert in_force("north", "m", timezone.now()) == second


def test_a_later_night_replaces_what_nobody_decided() -> None:
    first = proposed()
    second = proposed(replace(FOUND, prompt=SideCorrection(1_500, 0)))
    first.refresh_from_db()
    assert (first.state, second.version) == ("superseded", 2)
    with pytest.raises(CorrectionDecided):
        accept(first)


def test_what_was_declined_is_not_asked_again_for_a_month() -> None:
    decide(proposed().pk, accepts=False, actor="ann", reason="a test ran")
    alike = replace(FOUND, prompt=SideCorrection(1_010, 14))
    assert not propose("north", "m", alike, 120)
    assert not CountCorrection.objects.filter(state="proposed").exists()
    assert propose("south", "m", alike, 120)
    assert propose("north", "m", replace(FOUND, prompt=SideCorrection(1_200, 12)), 120)
    with time_machine.travel(timezone.now() + timedelta(days=31)):
        assert propose("north", "m", alike, 120)


def test_it_is_decided_once_and_with_a_reason() -> None:
    row = proposed()
    for reason in ("", "   ", "x" * 501, "a\x00b"):
        with pytest.raises(BadCorrectionAct):
            decide(row.pk, accepts=True, actor="ann", reason=reason)
    row.refresh_from_db()
    assert (row.state, AuditEvent.objects.filter(subject=row.public_id).exists()) == (
        "proposed",
        False,
    )
    decide(row.pk, accepts=False, actor="ann", reason="no")
    with pytest.raises(CorrectionDecided):
        accept(row)
    with pytest.raises(CorrectionDecided):
        decide(10**9, accepts=True, actor="ann", reason="x")


def test_withdrawn_it_counts_as_before_from_then_on() -> None:
    row = accept(proposed())
    between = timezone.now()
    plain = withdraw(row.pk, actor="bob", reason="the vendor changed")
    assert (plain.version, in_force("north", "m", timezone.now())) == (2, plain)
    assert in_force("north", "m", between) == row
    assert AuditEvent.objects.get(action="correction:withdrawn").reason == "the vendor changed"
    assert estimated(value_of(plain)) == estimated(None)
    with pytest.raises(CorrectionDecided):
        withdraw(row.pk, actor="bob", reason="again")
    assert CountCorrection.objects.count() == 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE billing_countcorrection SET prompt_per_mille = 1",
        "UPDATE billing_countcorrection SET state = 'proposed', decided_at = NULL",
        "DELETE FROM billing_countcorrection",
        "TRUNCATE billing_countcorrection CASCADE",
    ],
)
def test_what_was_accepted_never_changes(change) -> None:
    row = accept(proposed())
    with pytest.raises(DatabaseError), transaction.atomic():
        CountCorrection.objects.raw(change)._fetch_all()
    row.refresh_from_db()
    assert (row.state, row.prompt_per_mille) == ("accepted", 1_000)


# --- what it does to a count ----------------------------------------------------------------------


def estimated(correction: Correction | None, **changes):
    fields = {"model": "vendor-m", "family": "qwen2.5", "max_output_tokens": 1_000, "n": 1}
    return estimate(ASKED, SAID, **{**fields, **changes}, correction=correction)


def test_an_estimate_is_corrected_and_says_so() -> None:
    plain = estimated(None)
    told = estimated(replace(FOUND, version=3))
    assert told.prompt_tokens == plain.prompt_tokens + 12
    assert told.completion_tokens == (plain.completion_tokens * 1_100 + 500) // 1_000
    assert (told.correction, plain.correction) == (3, None)
    assert told.expected_error is not None
    assert Decimal("0.010") <= told.expected_error <= Decimal("0.020")
    assert "then corrected by what this vendor has reported before (correction 3)" in (
        told.sentence()
    )


def test_a_correction_is_for_the_rules_that_it_was_learnt_with() -> None:
    for stale in (replace(FOUND, rule_version="2020-01-01"), replace(FOUND, family="qwen3")):
        assert estimated(stale) == estimated(None)


def test_a_corrected_estimate_keeps_its_bounds() -> None:
    much = replace(FOUND, completion=SideCorrection(4_000, 10_000))
    assert estimated(much, max_output_tokens=30).completion_tokens == 30
    less = replace(FOUND, completion=SideCorrection(1_000, -10_000))
    assert estimated(less).completion_tokens == 0
    nothing = {"choices": [{"message": {"role": "assistant", "content": ""}}]}
    fields = {"model": "vendor-m", "family": "qwen2.5", "max_output_tokens": 1_000, "n": 1}
    assert estimate(ASKED, nothing, **fields, correction=much).completion_tokens == 0
