"""Vendors' counts beside ours: what is evidence, what is kept of it, what it leads to."""

import itertools
from datetime import date, timedelta
from typing import Any

import orjson
import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from billing.corrections import decide
from billing.estimation import count_completion, count_prompt
from billing.estimation.learning import SAMPLE_MIN
from billing.models import CountComparison, CountCorrection
from billing.usage import Usage
from gateway.exchanges import comparing
from gateway.exchanges.comparing import compare_counts
from gateway.exchanges.estimating import settle_by_estimate
from gateway.models import Transcript
from gateway.tasks import compare_counts as the_task
from tests.gateway.exchanges.made import ATTEMPT, VENDOR_MODEL, Maker, a_stream, record
from tests.gateway.exchanges.uncounted import COUNTED, FAMILY, Ground, charge_of

HIDDEN = 40  # tokens of a system prompt that the vendor adds and we cannot see
WORDS = ("sparrow", "river", "lantern", "quiet", "harvest", "copper", "window")


@pytest.fixture
def maker(world) -> Maker:
    return Maker(world.tenant())


def today() -> date:
    return timezone.now().date()


def exchange_of(maker: Maker, number: int, *, hidden: int = HIDDEN, **changes: Any):
    """One whose vendor counts `hidden` tokens more than we do in its prompt."""
    words = " ".join(itertools.islice(itertools.cycle(WORDS), 3 + 5 * number % 90))
    request = {"model": "m", "messages": [{"role": "user", "content": words}], "stream": True}
    said = f"About {words}"
    ours = count_prompt(request, model=VENDOR_MODEL).tokens
    completion = {"choices": [{"message": {"role": "assistant", "content": said}}]}
    answered = count_completion(completion, model=VENDOR_MODEL, finish_reason="stop").tokens
    usage = Usage(input_tokens=ours + hidden, output_tokens=answered)
    exchange = maker.settled(
        maker.held(is_test=changes.pop("is_test", False)), usage=usage, **changes
    )
    record(exchange, request=orjson.dumps(request), answer=a_stream(said))
    return exchange


def compared() -> CountComparison:
    return CountComparison.objects.get(day=today())


def test_a_vendor_that_adds_to_every_prompt_is_found_and_a_correction_proposed(maker) -> None:
    for number in range(SAMPLE_MIN + 4):
        exchange_of(maker, number)

    assert compare_counts(today()) == 1

    row = compared()
    assert (row.vendor, row.vendor_model) == (ATTEMPT["vendor"], VENDOR_MODEL)
    assert row.prompt["sample_size"] == row.completion["sample_size"] == SAMPLE_MIN + 4
    assert float(row.prompt["bias"]) > 0.2
    assert row.completion == {
        "sample_size": SAMPLE_MIN + 4,
        "median_error": "0.0000",
        "p95_error": "0.0000",
        "bias": "0.0000",
    }
    assert row.is_drifting  # the family's count is exact, and the vendor reports more
    proposal = CountCorrection.objects.get()
    assert (proposal.state, proposal.prompt_per_mille, proposal.prompt_offset) == (
        "proposed",
        1_000,
        HIDDEN,
    )
    assert (proposal.completion_per_mille, proposal.completion_offset) == (1_000, 0)
    assert (proposal.sample_size, proposal.prompt_error) == (SAMPLE_MIN + 4, 0)


def test_accepted_it_makes_the_next_night_right(maker) -> None:
    for number in range(SAMPLE_MIN):
        exchange_of(maker, number)
    compare_counts(today())
    decide(CountCorrection.objects.get().pk, accepts=True, actor="ann", reason="it agrees")
    CountComparison.objects.all().delete()

    compare_counts(today())

    row = compared()
    assert row.correction == CountCorrection.objects.get()
    assert (row.prompt["median_error"], row.is_drifting) == ("0.0000", False)


def test_the_same_day_is_compared_once(maker) -> None:
    for number in range(SAMPLE_MIN):
        exchange_of(maker, number)
    assert compare_counts(today()) == 1
    before = list(CountComparison.objects.values())
    assert compare_counts(today()) == 0
    assert list(CountComparison.objects.values()) == before
    assert CountCorrection.objects.count() == 1


def test_the_task_compares_yesterday(maker) -> None:
    exchange_of(maker, 1)
    the_task()
    assert not CountComparison.objects.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"is_test": True},
        {"usage_source": "estimate"},
        {"outcome": "partial"},
        {"flags": ("usage_mismatch",)},
        {"facts": {"attempts": []}},
    ],
)
def test_what_the_vendor_did_not_count_whole_is_no_evidence(maker, changes) -> None:
    exchange_of(maker, 1, **changes)
    assert compare_counts(today()) == 0
    assert not CountComparison.objects.exists()


def test_what_is_not_stored_as_it_was_is_no_evidence(maker) -> None:
    exchange_of(maker, 1)
    masked = exchange_of(maker, 2)
    legs = Transcript.objects.get(exchange_id=masked.id).legs
    legs["client"]["size_bytes"] += 20
    Transcript.objects.filter(exchange_id=masked.id).update(legs=legs)
    gone = exchange_of(maker, 3)
    Transcript.objects.filter(exchange_id=gone.id).update(vendor_answer=None)

    compare_counts(today())

    assert compared().prompt["sample_size"] == 1


def test_one_that_cannot_be_read_costs_the_others_nothing(maker) -> None:
    exchange_of(maker, 1)
    broken = exchange_of(maker, 2)
    Transcript.objects.filter(exchange_id=broken.id).update(client_request=b"no frames")
    assert compare_counts(today()) == 1
    assert compared().prompt["sample_size"] == 1


def test_few_exchanges_are_shown_and_teach_nothing(maker) -> None:
    exchange_of(maker, 1)
    compare_counts(today())
    assert not compared().is_drifting
    assert not CountCorrection.objects.exists()


def test_without_time_the_rest_waits_for_the_next_run(maker, monkeypatch) -> None:
    exchange_of(maker, 1)
    monkeypatch.setattr(comparing, "WITHIN_S", -1.0)
    assert compare_counts(today()) == 0
    monkeypatch.undo()
    assert compare_counts(today()) == 1


def test_the_command_says_what_was_found(maker, capsys) -> None:
    exchange_of(maker, 1)
    call_command("compare_counts", day=str(today()))
    out = capsys.readouterr().out
    assert f"north {VENDOR_MODEL}: prompts 1, median" in out
    assert out.endswith("compared 1\n")
    with pytest.raises(CommandError, match="is no day"):
        call_command("compare_counts", day="soon")


# --- what an accepted correction does to an estimate ----------------------------------------------


def corrected_by(offset: int) -> CountCorrection:
    now = timezone.now()
    return CountCorrection.objects.create(
        vendor="north",
        vendor_model="vendor-m",
        version=1,
        family=FAMILY,
        rule_version=comparing.RULE_VERSION,
        prompt_offset=offset,
        prompt_error="0.0100",
        completion_error="0.0000",
        sample_size=200,
        state="accepted",
        decided_at=now,
    )


def test_an_estimate_for_that_vendor_is_corrected_and_explains_itself(world) -> None:
    ground = Ground(world)
    corrected_by(HIDDEN)
    hold = ground.waiting(facts={"vendor": "north"})
    other = ground.waiting(facts={"vendor": "south"})

    settle_by_estimate(hold.exchange_id)
    settle_by_estimate(other.exchange_id)

    charge = charge_of(hold)
    assert (charge.input_tokens, charge.output_tokens) == (COUNTED[0] + HIDDEN, COUNTED[1])
    assert charge.estimate["correction"] == 1
    assert "correction 1" in charge.estimate["sentence"]
    assert charge_of(other).input_tokens == COUNTED[0]
    assert charge_of(other).estimate["correction"] is None


def test_a_correction_is_never_retroactive(world) -> None:
    ground = Ground(world)
    hold = ground.waiting(facts={"vendor": "north"})
    corrected_by(HIDDEN)
    settle_by_estimate(hold.exchange_id)
    assert charge_of(hold).input_tokens == COUNTED[0]


def test_a_day_is_found_by_the_ids_of_its_exchanges(maker) -> None:
    exchange_of(maker, 1)
    assert compare_counts(today() - timedelta(days=1)) == 0
    assert compare_counts(today() + timedelta(days=6)) == 1
    assert compare_counts(today() + timedelta(days=7)) == 0
