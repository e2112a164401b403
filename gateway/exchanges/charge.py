"""The arithmetic of one exchange: quantities, prices, hold, charge, and where each came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from billing.models import Charge, Exchange, Phase, Transfer, UsageSource
from billing.rating import PER_REQUEST, PROMPT_CLASSES, Line, rate, version_of
from billing.usage import COMPLETION_ESTIMATED, PROMPT_ESTIMATED, Usage

PRICE = "price"
"""The source of a quantity that is no usage: one request is one request."""
EXACT_DECIMALS = 15


@dataclass(frozen=True, slots=True)
class PriceLine:
    """One line of a charge. `source` is "vendor", "estimate", "none" or "price".

    `unit_nanos` is per million tokens, or per request for the dimension "request".
    """

    dimension: str
    quantity: int
    unit_nanos: int
    exact_micro_nanos: int
    nanos: int
    source: str

    @classmethod
    def of(cls, line: Line, source: str) -> "PriceLine":
        """A line of a usage whose tokens come from `source`."""
        return cls(
            dimension=line.dimension,
            quantity=line.quantity,
            unit_nanos=line.unit_nanos,
            exact_micro_nanos=line.exact_micro_nanos,
            nanos=line.nanos,
            source=PRICE if line.dimension == PER_REQUEST else source,
        )

    @property
    def unit(self) -> str:
        return "request" if self.dimension == PER_REQUEST else "million tokens"

    @property
    def exact(self) -> str:
        """The product before rounding, as a decimal text of the currency."""
        return f"{Decimal(self.exact_micro_nanos).scaleb(-EXACT_DECIMALS):f}"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A transfer of the exchange: held, posted or voided."""

    public_id: str
    phase: str
    nanos: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ChargeView:
    """hold − charge = released, unless the charge passed the hold: then released is zero.

    `shortfall_nanos` is what the wallet could not carry; lines add up to charge and shortfall.
    `sentence` says how an estimate was counted, None where nothing was estimated.
    """

    usage: Usage
    usage_source: str
    outcome: str
    lines: tuple[PriceLine, ...]
    charge_nanos: int
    shortfall_nanos: int
    released_nanos: int
    flags: tuple[str, ...]
    vendor_usage: Any
    estimate: dict[str, Any] | None
    price_id: str | None
    price_since: datetime | None
    settled_at: datetime

    @property
    def is_estimated(self) -> bool:
        """True if any of the quantities was counted by us."""
        return self.usage_source == UsageSource.ESTIMATE or bool(
            {PROMPT_ESTIMATED, COMPLETION_ESTIMATED} & set(self.flags)
        )

    @property
    def sentence(self) -> str | None:
        said = None if self.estimate is None else self.estimate.get("sentence")
        return said if isinstance(said, str) else None

    @property
    def error_nanos(self) -> int | None:
        """The expected error of the estimate in money, either way; None where it is not known."""
        error = None if self.estimate is None else self.estimate.get("expected_error")
        return None if error is None else round(Decimal(str(error)) * self.charge_nanos)


def usage_of(charge: Charge) -> Usage:
    return Usage(
        input_tokens=charge.input_tokens,
        cached_input_tokens=charge.cached_input_tokens,
        cache_write_tokens=charge.cache_write_tokens,
        image_input_tokens=charge.image_input_tokens,
        audio_input_tokens=charge.audio_input_tokens,
        output_tokens=charge.output_tokens,
        reasoning_tokens=charge.reasoning_tokens,
        audio_output_tokens=charge.audio_output_tokens,
    )


def charge_view(exchange: Exchange, charge: Charge) -> ChargeView:
    usage = usage_of(charge)
    flags = tuple(charge.flags or ())
    price = exchange.price
    lines = () if price is None else rate(usage, version_of(price, exchange.terms))
    if not charge.charge_nanos + charge.shortfall_nanos and any(line.nanos for line in lines):
        lines = ()  # counted for the record and not charged: it has no arithmetic to show
    return ChargeView(
        usage=usage,
        usage_source=charge.usage_source,
        outcome=charge.outcome,
        lines=tuple(
            PriceLine.of(line, _source(line.dimension, charge.usage_source, flags))
            for line in lines
        ),
        charge_nanos=charge.charge_nanos,
        shortfall_nanos=charge.shortfall_nanos,
        released_nanos=max(exchange.hold_nanos - charge.charge_nanos, 0),
        flags=flags,
        vendor_usage=charge.vendor_usage,
        estimate=charge.estimate,
        price_id=None if price is None else price.public_id,
        price_since=None if price is None else price.effective_from,
        settled_at=charge.created_at,
    )


def ledger_entries(transfers: Sequence[Transfer]) -> tuple[LedgerEntry, ...]:
    words = {Phase.PENDING: "held", Phase.POSTED: "posted", Phase.VOIDED: "voided"}
    return tuple(
        LedgerEntry(
            public_id=transfer.public_id,
            phase=words.get(Phase(transfer.phase), "single"),
            nanos=transfer.amount_nanos,
            created_at=transfer.created_at,
        )
        for transfer in transfers
    )


def _source(dimension: str, usage_source: str, flags: Sequence[str]) -> str:
    is_prompt = dimension in PROMPT_CLASSES
    if usage_source == UsageSource.VENDOR and (
        (PROMPT_ESTIMATED if is_prompt else COMPLETION_ESTIMATED) in flags
    ):
        return str(UsageSource.ESTIMATE)
    return usage_source
