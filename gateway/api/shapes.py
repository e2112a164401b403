"""The API's answers: their shapes as types, and how each is made. The OpenAPI schema reads these.

Money is a decimal text with nine digits after the point, beside its `currency`. Times are
RFC 3339 in UTC, durations milliseconds.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

from billing.limits import LimitStanding
from billing.models import Account, UsageSource
from billing.money import text_from_nanos
from billing.rating import PriceVersion, Rates
from billing.usage import Usage
from gateway.api.counting import Quote
from gateway.exchanges.charge import ChargeView, PriceLine
from gateway.exchanges.legs import is_for_staff
from gateway.exchanges.selectors import ExchangeRow
from gateway.models import Model
from keys.models import ApiKey

OWNER = "farthing"


class PromptDetails(TypedDict):
    cached_tokens: int
    cache_write_tokens: int
    audio_tokens: int


class CompletionDetails(TypedDict):
    reasoning_tokens: int
    audio_tokens: int


class UsageShape(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class PriceLineShape(TypedDict):
    """`unit_price` is for one `unit`; `exact` is rounded once, half up, to `amount`."""

    dimension: str
    quantity: int
    unit: str
    unit_price: str
    exact: str
    amount: str
    source: str


class PriceVersionShape(TypedDict):
    id: str
    effective_from: str


class EstimateShape(TypedDict):
    sentence: str | None
    method: str | None
    family: str | None
    vocabulary: str | None
    expected_error: str | None
    correction: int | None


class StatusMessageShape(TypedDict):
    vendor_status: int | None
    vendor_message: str | None
    user_status: int | None
    user_message: str | None


class LimitReasonShape(TypedDict):
    """The limit that refused a request or ended its answer.

    `kind` is spend, balance, requests_per_minute or concurrent_requests; `scope` key, member or
    tenant. Money is decimal text; `size` of the last two kinds is a count.
    """

    kind: str
    scope: str
    period: str | None
    size: str
    posted: str | None
    held: str | None
    needed: str | None
    resets_at: str | None


class AttemptShape(TypedDict):
    number: int
    vendor: str | None
    vendor_model: str | None
    status: int | None
    error: str | None
    started_ms: int | None
    first_byte_ms: int | None
    ended_ms: int | None


class TimingsShape(TypedDict):
    first_byte_ms: int | None
    duration_ms: int | None


class KeyNameShape(TypedDict):
    id: str
    name: str
    masked: str


class RequestShape(TypedDict):
    """One exchange in the ledger's view. `charge` is null until it is settled."""

    object: Literal["request"]
    id: str
    completion_id: str
    client_request_id: str | None
    created_at: str
    ended_at: str | None
    settled_at: str | None
    state: Literal["open", "estimating", "settled"]
    outcome: str | None
    model: str
    vendor: str | None
    vendor_model: str | None
    key: KeyNameShape | None
    test: bool
    stream: bool
    status_code: int | None
    error_code: str | None
    finish_reason: str | None
    usage: UsageShape | None
    usage_source: Literal["vendor", "estimate", "none"]
    flags: list[str]
    currency: str
    hold: str
    charge: str | None
    released: str | None
    shortfall: str | None
    price: PriceVersionShape | None
    price_lines: list[PriceLineShape]
    estimate: EstimateShape | None
    message: StatusMessageShape | None
    limit: LimitReasonShape | None
    attempts: list[AttemptShape]
    timings: TimingsShape


class RatesShape(TypedDict):
    """Units of currency, per million tokens."""

    input: str
    cached_input: str
    cache_write: str
    image_input: str
    audio_input: str
    output: str
    reasoning: str
    audio_output: str


class TierShape(RatesShape):
    """The rates of a whole request whose prompt has more tokens than this."""

    above_prompt_tokens: int


class PricingShape(RatesShape):
    """`request` is per request."""

    currency: str
    request: str
    tiers: list[TierShape]


class ModelShape(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_tokens: int
    max_output_tokens: int
    pricing: PricingShape | None


class ModelListShape(TypedDict):
    object: Literal["list"]
    data: list[ModelShape]


class WorstCaseShape(TypedDict):
    """All choices as long as they may be, every token at the dearest class it could turn out as."""

    output_tokens: int
    amount: str


class QuoteShape(TypedDict):
    """`amount` and `lines` are of the prompt alone."""

    currency: str
    price: str
    amount: str
    lines: list[PriceLineShape]
    worst_case: WorstCaseShape


class TokenCountShape(TypedDict):
    """`expected_error` is a fraction, null where nothing bounds it. `cost` is null if unpriced."""

    object: Literal["token_count"]
    model: str
    tokens: int
    method: Literal["template-exact", "vocabulary-exact", "approximate"]
    expected_error: str | None
    sentence: str
    family: str
    vocabulary: str
    vocabulary_sha256: str
    rule_version: str
    correction: int | None
    flags: list[str]
    cost: QuoteShape | None


class LimitsShape(TypedDict):
    requests_per_minute: int | None
    concurrent_requests: int | None


class SpendLimitShape(TypedDict):
    """A limit that counts this key's requests. size − posted − held = remaining, never below 0."""

    scope: str
    period: str
    action: str
    size: str
    posted: str
    held: str
    remaining: str
    resets_at: str | None


class KeyShape(TypedDict):
    """The key about itself; null is "no limit of its own". `spent` counts from `spent_since`."""

    object: Literal["key"]
    id: str
    masked: str
    name: str
    test: bool
    state: str
    models: list[str] | None
    allowed_ips: list[str] | None
    limits: LimitsShape
    spend_limits: list[SpendLimitShape]
    currency: str
    spent: str
    spent_since: str
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class BalanceShape(TypedDict):
    """balance + credit_limit − on_hold = available."""

    object: Literal["balance"]
    currency: str
    balance: str
    on_hold: str
    credit_limit: str
    available: str
    as_of: str


def request_shape(row: ExchangeRow) -> RequestShape:
    exchange, charge, last = row.exchange, row.charge, row.last_attempt
    return {
        "object": "request",
        "id": row.public_id,
        "completion_id": row.completion_id,
        "client_request_id": exchange.client_request_id,
        "created_at": moment(exchange.created_at),
        "ended_at": _moment_or_none(exchange.ended_at),
        "settled_at": _moment_or_none(exchange.settled_at),
        "state": _state(exchange.state),
        "outcome": None if charge is None else charge.outcome,
        "model": exchange.model,
        "vendor": last.get("vendor"),
        "vendor_model": last.get("vendor_model"),
        "key": None
        if row.key is None
        else {"id": row.key.public_id, "name": row.key.name, "masked": row.key.masked},
        "test": exchange.is_test,
        "stream": exchange.is_stream,
        "status_code": exchange.status_code,
        "error_code": exchange.error_code,
        "finish_reason": exchange.finish_reason,
        "usage": _usage_or_none(charge),
        "usage_source": _source(charge),
        "flags": [] if charge is None else list(charge.flags),
        "currency": exchange.currency,
        "hold": text_from_nanos(exchange.hold_nanos),
        "charge": None if charge is None else text_from_nanos(charge.charge_nanos),
        "released": None if charge is None else text_from_nanos(charge.released_nanos),
        "shortfall": None if charge is None else text_from_nanos(charge.shortfall_nanos),
        "price": _price(charge),
        "price_lines": [] if charge is None else [_price_line(line) for line in charge.lines],
        "estimate": _estimate(charge),
        "message": _message(exchange.message),
        "limit": _limit(exchange.message),
        "attempts": [_attempt(attempt) for attempt in exchange.attempts],
        "timings": {
            "first_byte_ms": exchange.first_byte_ms,
            "duration_ms": exchange.duration_ms,
        },
    }


def model_shape(model: Model, price: PriceVersion | None) -> ModelShape:
    return {
        "id": model.name,
        "object": "model",
        "created": int(model.created_at.timestamp()),
        "owned_by": OWNER,
        "context_tokens": model.context_tokens,
        "max_output_tokens": model.max_output_tokens,
        "pricing": None if price is None else _pricing(price),
    }


def token_count_shape(model: Model, quote: Quote) -> TokenCountShape:
    counted = quote.counted
    error = counted.expected_error
    return {
        "object": "token_count",
        "model": model.name,
        "tokens": counted.tokens,
        "method": counted.method,
        "expected_error": None if error is None else str(error),
        "sentence": counted.sentence(),
        "family": counted.family,
        "vocabulary": counted.vocabulary,
        "vocabulary_sha256": counted.vocabulary_sha256,
        "rule_version": counted.rule_version,
        "correction": counted.correction,
        "flags": list(counted.flags),
        "cost": None if quote.price is None else _quote(quote, quote.price),
    }


def key_shape(
    key: ApiKey,
    *,
    currency: str,
    spent_nanos: int,
    spent_since: datetime,
    last_used_at: datetime | None,
    spend_limits: Sequence[LimitStanding] = (),
) -> KeyShape:
    return {
        "object": "key",
        "id": key.public_id,
        "masked": key.masked,
        "name": key.name,
        "test": key.kind == "test",
        "state": key.state,
        "models": key.allowed_models,
        "allowed_ips": key.allowed_ips,
        "limits": {
            "requests_per_minute": key.requests_per_minute,
            "concurrent_requests": key.concurrent_requests,
        },
        "spend_limits": [_spend_limit(limit) for limit in spend_limits],
        "currency": currency,
        "spent": text_from_nanos(spent_nanos),
        "spent_since": moment(spent_since),
        "created_at": moment(key.created_at),
        "expires_at": _moment_or_none(key.expires_at),
        "last_used_at": _moment_or_none(last_used_at),
    }


def balance_shape(wallet: Account, *, as_of: datetime) -> BalanceShape:
    return {
        "object": "balance",
        "currency": wallet.currency,
        "balance": text_from_nanos(wallet.posted_nanos),
        "on_hold": text_from_nanos(wallet.held_nanos),
        "credit_limit": text_from_nanos(wallet.credit_limit_nanos),
        "available": text_from_nanos(wallet.available_nanos),
        "as_of": moment(as_of),
    }


def usage_shape(usage: Usage) -> UsageShape:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "audio_tokens": usage.audio_input_tokens,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": usage.audio_output_tokens,
        },
    }


def moment(time: datetime) -> str:
    """Return the time as `2026-12-01T14:11:48.407Z`."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment_or_none(time: datetime | None) -> str | None:
    return None if time is None else moment(time)


def _state(state: str) -> Literal["open", "estimating", "settled"]:
    if state == "open":
        return "open"
    return "estimating" if state == "estimating" else "settled"


def _source(charge: ChargeView | None) -> Literal["vendor", "estimate", "none"]:
    if charge is None or charge.usage_source == UsageSource.NONE:
        return "none"
    return "vendor" if charge.usage_source == UsageSource.VENDOR else "estimate"


def _usage_or_none(charge: ChargeView | None) -> UsageShape | None:
    if charge is None or charge.usage_source == UsageSource.NONE:
        return None
    return usage_shape(charge.usage)


def _price(charge: ChargeView | None) -> PriceVersionShape | None:
    if charge is None or charge.price_id is None or charge.price_since is None:
        return None
    return {"id": charge.price_id, "effective_from": moment(charge.price_since)}


def _quote(quote: Quote, price: PriceVersion) -> QuoteShape:
    return {
        "currency": price.currency,
        "price": price.public_id,
        "amount": text_from_nanos(sum(line.nanos for line in quote.lines)),
        "lines": [_price_line(line) for line in quote.lines],
        "worst_case": {
            "output_tokens": quote.output_tokens,
            "amount": text_from_nanos(quote.worst_nanos),
        },
    }


def _price_line(line: PriceLine) -> PriceLineShape:
    return {
        "dimension": line.dimension,
        "quantity": line.quantity,
        "unit": line.unit,
        "unit_price": text_from_nanos(line.unit_nanos),
        "exact": line.exact,
        "amount": text_from_nanos(line.nanos),
        "source": line.source,
    }


def _estimate(charge: ChargeView | None) -> EstimateShape | None:
    kept = None if charge is None else charge.estimate
    if kept is None:
        return None
    return {
        "sentence": kept.get("sentence"),
        "method": kept.get("method"),
        "family": kept.get("family"),
        "vocabulary": kept.get("vocabulary"),
        "expected_error": kept.get("expected_error"),
        "correction": kept.get("correction"),
    }


def _message(kept: Any) -> StatusMessageShape | None:
    if not isinstance(kept, dict):
        return None
    return {
        "vendor_status": kept.get("vendor_status"),
        "vendor_message": kept.get("vendor_message"),
        "user_status": kept.get("user_status"),
        "user_message": kept.get("user_message"),
    }


def _limit(kept: Any) -> LimitReasonShape | None:
    found = kept.get("limit") if isinstance(kept, dict) else None
    if found is None:
        return None
    return {
        "kind": found["kind"],
        "scope": found["scope"],
        "period": found["period"],
        "size": found["size"],
        "posted": found["posted"],
        "held": found["held"],
        "needed": found["needed"],
        "resets_at": found["resets_at"],
    }


def _spend_limit(limit: LimitStanding) -> SpendLimitShape:
    return {
        "scope": limit.scope,
        "period": limit.period,
        "action": limit.action,
        "size": text_from_nanos(limit.amount_nanos),
        "posted": text_from_nanos(limit.posted_nanos),
        "held": text_from_nanos(limit.held_nanos),
        "remaining": text_from_nanos(limit.remaining_nanos),
        "resets_at": _moment_or_none(limit.resets_at),
    }


def _attempt(kept: dict[str, Any]) -> AttemptShape:
    """What a vendor said in its own words is left out: it is for staff."""
    status = kept.get("status")
    return {
        "number": kept.get("n", 0),
        "vendor": kept.get("vendor"),
        "vendor_model": kept.get("vendor_model"),
        "status": None if is_for_staff(status) else status,
        "error": kept.get("error"),
        "started_ms": kept.get("started_ms"),
        "first_byte_ms": kept.get("first_byte_ms"),
        "ended_ms": kept.get("ended_ms"),
    }


def _pricing(price: PriceVersion) -> PricingShape:
    return {
        "currency": price.currency,
        **_rates(price.rates),
        "request": text_from_nanos(price.per_request_nanos),
        "tiers": [
            {"above_prompt_tokens": tier.above_prompt_tokens, **_rates(tier.rates)}
            for tier in price.tiers
        ],
    }


def _rates(rates: Rates) -> RatesShape:
    return {
        "input": text_from_nanos(rates.input_nanos),
        "cached_input": text_from_nanos(rates.cached_input_nanos),
        "cache_write": text_from_nanos(rates.cache_write_nanos),
        "image_input": text_from_nanos(rates.image_input_nanos),
        "audio_input": text_from_nanos(rates.audio_input_nanos),
        "output": text_from_nanos(rates.output_nanos),
        "reasoning": text_from_nanos(rates.reasoning_nanos),
        "audio_output": text_from_nanos(rates.audio_output_nanos),
    }
