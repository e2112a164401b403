"""The night's comparison: what vendors counted beside what we count, a model at a time.

Evidence is an exchange with the vendor's own usage whose bodies are stored whole: tenants that
keep no content give none, and a body that was masked or cut is left out, since it is not what the
vendor counted. Only numbers are kept of what was read. Each vendor model is a transaction of its
own, once a day: after a kill the rest is done by the next run.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from statistics import median
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from billing.corrections import in_force, propose, value_of
from billing.estimation import (
    Correction,
    Count,
    SideCorrection,
    count_completion,
    count_prompt,
    family_of,
)
from billing.estimation.corrections import UNCHANGED
from billing.estimation.estimates import REASONING_UNKNOWN, RULE_VERSION
from billing.estimation.learning import Pair, Spread, is_drifting, learn, spread
from billing.estimation.reading import MEDIA, UNKNOWN_PARTS
from billing.models import Charge, CountComparison, CountCorrection
from gateway.exchanges.charge import usage_of
from gateway.exchanges.record import Legs
from gateway.exchanges.rereading import reread
from gateway.models import Route, Transcript
from gateway.relay.capture import unpack
from gateway.relay.request import read_request

logger = logging.getLogger(__name__)

SAMPLE_MAX: Final = 200
WINDOW: Final = timedelta(days=7)
HISTORY: Final = 14
WITHIN_S: Final = 480.0

# Of each vendor model the day's exchanges in random order, then those of the days before: their
# ids begin with their time and end at random.
_SAMPLE: Final = """
SELECT vendor, vendor_model, array_agg(id ORDER BY place)
FROM (
    SELECT e.id, a.vendor, a.vendor_model,
           row_number() OVER (PARTITION BY a.vendor, a.vendor_model
                              ORDER BY e.id < farthing_first_uuid(%(day)s),
                                       md5(e.id::text)) AS place
    FROM billing_exchange e
    JOIN billing_charge c ON c.exchange_id = e.id AND c.tenant_id = e.tenant_id
    JOIN gateway_transcript t ON t.exchange_id = e.id
    CROSS JOIN LATERAL (SELECT e.attempts->-1->>'vendor' AS vendor,
                               e.attempts->-1->>'vendor_model' AS vendor_model) a
    WHERE e.id >= farthing_first_uuid(%(since)s) AND e.id < farthing_first_uuid(%(until)s)
      AND c.exchange_id >= farthing_first_uuid(%(since)s)
      AND c.exchange_id < farthing_first_uuid(%(until)s)
      AND NOT e.is_test AND a.vendor IS NOT NULL AND a.vendor_model IS NOT NULL
      AND c.usage_source = 'vendor' AND c.outcome = 'answered'
      AND (c.flags IS NULL OR c.flags = '[]')
      AND t.client_request IS NOT NULL AND t.vendor_answer IS NOT NULL
) s
WHERE place <= %(most)s
GROUP BY vendor, vendor_model
ORDER BY vendor, vendor_model
"""


@dataclass(slots=True)
class _Side:
    """The pairs of prompts or of completions, and what their counts promise of their errors."""

    pairs: list[Pair] = field(default_factory=list)
    errors: list[Decimal] = field(default_factory=list)

    def add(self, counted: Count, reported: int) -> None:
        if counted.tokens > 0 and reported > 0:
            self.pairs.append((counted.tokens, reported))
            if counted.expected_error is not None:
                self.errors.append(counted.expected_error)

    @property
    def expected_error(self) -> Decimal | None:
        return median(self.errors) if self.errors else None


def compare_counts(day: date) -> int:
    """Compare every vendor model's sample of that day (UTC); answers how many were compared now."""
    until_s = time.monotonic() + WITHIN_S
    compared = 0
    done = set(CountComparison.objects.filter(day=day).values_list("vendor", "vendor_model"))
    for vendor, vendor_model, ids in _samples(day):
        if (vendor, vendor_model) in done:
            continue
        if time.monotonic() > until_s:
            logger.warning("No time was left to compare %s %s", vendor, vendor_model)
            break
        try:
            compared += _compare(day, vendor, vendor_model, ids)
        except Exception:  # its neighbours do not wait for it
            logger.exception("The counts of %s %s could not be compared", vendor, vendor_model)
    return compared


def _samples(day: date) -> list[tuple[str, str, list[UUID]]]:
    start = datetime.combine(day, clock.min, UTC)
    until = start + timedelta(days=1)
    window: dict[str, datetime | int] = {
        "day": start,
        "since": until - WINDOW,
        "until": until,
        "most": SAMPLE_MAX,
    }
    with connection.cursor() as cursor:
        cursor.execute(_SAMPLE, window)
        return list(cursor.fetchall())


def _compare(day: date, vendor: str, vendor_model: str, ids: Sequence[UUID]) -> bool:
    family = family_of(vendor_model, _family_at(vendor, vendor_model)).name
    prompts, completions = _evidence(ids, vendor_model, family)
    if not prompts.pairs and not completions.pairs:
        return False
    row = in_force(vendor, vendor_model, datetime.now(UTC))
    held = value_of(row)
    if held is not None and (held.family, held.rule_version) != (family, RULE_VERSION):
        row = held = None
    sides = (held.prompt, held.completion) if held else (UNCHANGED, UNCHANGED)
    with transaction.atomic():
        _, is_new = CountComparison.objects.get_or_create(
            vendor=vendor,
            vendor_model=vendor_model,
            day=day,
            defaults=_compared(vendor, vendor_model, day, family, row, (prompts, completions)),
        )
        learnt = learn(prompts.pairs, sides[0]), learn(completions.pairs, sides[1])
        if is_new and any(learnt):
            found = _correction(family, (prompts, completions), sides, learnt)
            propose(vendor, vendor_model, found, max(len(prompts.pairs), len(completions.pairs)))
    return is_new


def _compared(
    vendor: str,
    vendor_model: str,
    day: date,
    family: str,
    row: CountCorrection | None,
    sides: tuple[_Side, _Side],
) -> dict[str, Any]:
    held = value_of(row)
    by = (held.prompt, held.completion) if held else (UNCHANGED, UNCHANGED)
    spreads = [spread(side.pairs, correction) for side, correction in zip(sides, by, strict=True)]
    left = (
        (held.prompt_error, held.completion_error)
        if held
        else (sides[0].expected_error, sides[1].expected_error)
    )
    names = ("prompt", "completion")
    earlier = list(
        CountComparison.objects.filter(
            vendor=vendor,
            vendor_model=vendor_model,
            day__lt=day,
            family=family,
            rule_version=RULE_VERSION,
            correction=row,
        ).order_by("-day")[:HISTORY]
    )
    drifts = [
        now is not None and is_drifting(now, list(_biases(earlier, name)), error)
        for name, now, error in zip(names, spreads, left, strict=True)
    ]
    return {
        "family": family,
        "rule_version": RULE_VERSION,
        "correction": row,
        "prompt": _kept(spreads[0]),
        "completion": _kept(spreads[1]),
        "is_drifting": any(drifts),
    }


def _biases(earlier: Sequence[CountComparison], name: str) -> Iterator[Decimal]:
    for comparison in earlier:
        side = getattr(comparison, name)
        if side is not None:
            yield Decimal(side["bias"])


def _correction(
    family: str,
    sides: tuple[_Side, _Side],
    held: tuple[SideCorrection, SideCorrection],
    learnt: tuple[SideCorrection | None, SideCorrection | None],
) -> Correction:
    prompt, completion = (new or old for new, old in zip(learnt, held, strict=True))
    errors = [
        now.median_error if now is not None else None
        for now in (spread(sides[0].pairs, prompt), spread(sides[1].pairs, completion))
    ]
    return Correction(
        version=0,
        family=family,
        rule_version=RULE_VERSION,
        prompt=prompt,
        completion=completion,
        prompt_error=errors[0],
        completion_error=errors[1],
    )


def _kept(side: Spread | None) -> dict[str, Any] | None:
    if side is None:
        return None
    return {
        name: value if isinstance(value, int) else str(value)
        for name, value in asdict(side).items()
    }


# --- what an exchange tells -----------------------------------------------------------------------


def _family_at(vendor: str, vendor_model: str) -> str | None:
    route = (
        Route.objects.filter(vendor__name=vendor, vendor_model=vendor_model)
        .select_related("model")
        .order_by("priority", "pk")
        .first()
    )
    return None if route is None else route.family or route.model.family


def _evidence(ids: Sequence[UUID], vendor_model: str, family: str) -> tuple[_Side, _Side]:
    prompts, completions = _Side(), _Side()
    charges = Charge.objects.in_bulk(list(ids))
    for exchange_id in ids:
        transcript = Transcript.objects.filter(exchange_id=exchange_id).first()
        charge = charges.get(exchange_id)
        if transcript is None or charge is None:
            continue  # forgotten meanwhile
        try:
            _add(transcript, charge, vendor_model, family, prompts, completions)
        except Exception:  # one that cannot be read is no evidence
            logger.exception("Exchange %s could not be counted again", exchange_id)
    return prompts, completions


def _add(
    transcript: Transcript,
    charge: Charge,
    vendor_model: str,
    family: str,
    prompts: _Side,
    completions: _Side,
) -> None:
    legs = Legs.from_json(transcript.legs)
    asked = unpack(bytes(transcript.client_request or b""))
    said = unpack(bytes(transcript.vendor_answer or b""))
    vendor = legs.vendor[-1]
    if (len(asked), len(said)) != (legs.client.size_bytes, vendor.response_size_bytes):
        return  # masked, cut or compressed
    usage = usage_of(charge)
    request = read_request(asked).payload
    counted = count_prompt(request, model=vendor_model, family=family)
    if not {MEDIA, UNKNOWN_PARTS} & set(counted.flags):
        prompts.add(counted, usage.prompt_tokens)
    headers = [(str(name), str(value)) for name, value in vendor.response_headers]
    relay = reread(vendor_model, vendor.status or 0, headers, said)
    completion = count_completion(
        relay.completion,
        model=vendor_model,
        family=family,
        finish_reason=relay.finish_reason,
        request=request,
    )
    hidden = usage.reasoning_tokens if REASONING_UNKNOWN in completion.flags else 0
    completions.add(completion, usage.completion_tokens - hidden)
