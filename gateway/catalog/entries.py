"""A catalog file as values. `line` counts from 1 and is where the thing stands in the file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

KEPT_CREDENTIAL = "***"  # what an export shows for a credential; applied, it keeps the stored one


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    line: int
    words: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.words}"


class CatalogMistakes(Exception):
    """All that is wrong with a file. Nothing was changed."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes))
        super().__init__("\n".join(map(str, self.mistakes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorEntry:
    """`credential` is "" (none is sent), KEYLESS, KEPT_CREDENTIAL or a secret."""

    line: int
    name: str
    base_url: str
    credential: str = field(repr=False)
    connect_timeout_ms: int
    first_byte_timeout_ms: int
    idle_timeout_ms: int
    total_timeout_ms: int
    max_connections: int
    keep_alive_ms: int
    breaker_failures: int
    breaker_percent: int
    breaker_window_ms: int
    breaker_pause_ms: int
    client_gone: str
    cached_tokens: str
    accepts_stream_options: bool
    qualification: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEntry:
    line: int
    vendor: str
    vendor_model: str
    priority: int
    weight: int
    family: str | None

    @property
    def key(self) -> tuple[str, str]:
        return self.vendor, self.vendor_model


@dataclass(frozen=True, slots=True, kw_only=True)
class TierEntry:
    """What a longer prompt changes: nanos per million tokens; None leaves the price's own."""

    line: int
    above_prompt_tokens: int
    input_nanos: int | None
    cached_input_nanos: int | None
    cache_write_nanos: int | None
    image_input_nanos: int | None
    audio_input_nanos: int | None
    output_nanos: int | None
    reasoning_nanos: int | None
    audio_output_nanos: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceEntry:
    """Nanos per million tokens, `per_request_nanos` per request; None falls back (see Price).

    `effective_from` None is "from now on, if it is not so already". `tiers` ascend. `plan` "" is
    the list price.
    """

    line: int
    plan: str
    currency: str
    effective_from: datetime | None
    input_nanos: int | None
    cached_input_nanos: int | None
    cache_write_nanos: int | None
    image_input_nanos: int | None
    audio_input_nanos: int | None
    output_nanos: int | None
    reasoning_nanos: int | None
    audio_output_nanos: int | None
    per_request_nanos: int
    tiers: tuple[TierEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    line: int
    name: str
    family: str | None
    context_tokens: int
    max_output_tokens: int
    default_output_tokens: int
    sticky_routes: bool
    routes: tuple[RouteEntry, ...]
    prices: tuple[PriceEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsEntry:
    """`spend_limits` are triples of period, nanos and action, by period; see PlanTerms."""

    line: int
    currency: str
    effective_from: datetime | None
    monthly_fee_nanos: int
    included_credit_nanos: int
    price_factor_bps: int
    allowed_models: tuple[str, ...] | None
    requests_per_minute: int | None
    concurrent_requests: int | None
    spend_limits: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    line: int
    name: str
    terms: tuple[TermsEntry, ...]


@dataclass(frozen=True, slots=True)
class Catalog:
    vendors: tuple[VendorEntry, ...]
    models: tuple[ModelEntry, ...]
    plans: tuple[PlanEntry, ...] = ()
