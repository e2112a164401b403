"""Why a request was refused before any vendor was asked: for the client, and kept with the request.

Each says which limit it was, its size, what of it is used, and when there is room again.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from billing.ledger import HoldAnswer, LimitPassed
from billing.money import text_from_nanos
from gateway import errors
from gateway.errors import ApiError
from gateway.runtime.limits import Grant


@dataclass(frozen=True, slots=True)
class Why:
    """The limit that was in the way, as GET /v1/requests/{id} shows it.

    `kind` is spend, balance, requests_per_minute or concurrent_requests; `scope` key, member or
    tenant. `size`, `posted`, `held` and `needed` are money as decimal texts, of the last two kinds
    `size` is a count. `resets_at` is RFC 3339, None where nothing resets by itself.
    """

    kind: str
    scope: str
    size: str
    period: str | None = None
    posted: str | None = None
    held: str | None = None
    needed: str | None = None
    resets_at: str | None = None

    def kept(self) -> dict[str, Any]:
        return asdict(self)


def money_refusal(answer: HoldAnswer, needed_nanos: int) -> ApiError:
    """Say which it is: a spend limit, nothing left, too much asked, or others hold it for now."""
    if answer.limit is not None:
        return _limit_refusal(answer.limit)
    whole_nanos = answer.posted_nanos + answer.credit_limit_nanos
    whole, held, needed = map(text_from_nanos, (whole_nanos, answer.held_nanos, needed_nanos))
    figures = f"{whole} can be spent in all and {held} of it is held; this request could cost "
    if whole_nanos <= 0:
        error = errors.insufficient_balance(f"{figures}{needed}.")
    elif needed_nanos > whole_nanos:
        error = errors.estimate_exceeds_balance(f"{figures}{needed}.")
    else:
        error = errors.in_flight_budget_exhausted(f"{figures}{needed}.")
    posted = text_from_nanos(answer.posted_nanos)
    error.why = Why("balance", "tenant", whole, None, posted, held, needed).kept()
    return error


def rate_refusal(grant: Grant, now: datetime) -> ApiError:
    """Of a grant that was refused."""
    by, size = grant.refused_by, grant.limit_size
    scope = "key" if by is None else by.scope
    whose = "this key" if scope == "key" else "your organisation's plan"
    error = errors.rate_limit_exceeded(f"{size} {grant.limit} of {whose}", grant.retry_after_s)
    resets_at = now + timedelta(milliseconds=grant.retry_after_ms)
    kind = grant.limit.replace(" ", "_")
    error.why = Why(kind, scope, str(size), resets_at=_moment(resets_at)).kept()
    return error


def why_of(limit: LimitPassed) -> Why:
    size, posted, held, needed = _figures(limit)
    resets_at = None if limit.resets_at is None else _moment(limit.resets_at)
    return Why("spend", limit.scope, size, limit.period, posted, held, needed, resets_at)


def _limit_refusal(limit: LimitPassed) -> ApiError:
    words = _limit_words(limit)
    refused = errors.in_flight_budget_exhausted if limit.frees_soon else errors.key_limit_reached
    error = refused(words)
    error.why = why_of(limit).kept()
    return error


def _limit_words(limit: LimitPassed) -> str:
    size, posted, held, needed = _figures(limit)
    reset = "" if limit.resets_at is None else f" It resets at {_moment(limit.resets_at)}."
    return (
        f"The spend limit of this {limit.scope} ({limit.period}) is reached: {size}, of which "
        f"{posted} is spent and {held} held; this request could cost {needed}.{reset}"
    )


def _figures(limit: LimitPassed) -> list[str]:
    amounts = (limit.amount_nanos, limit.posted_nanos, limit.held_nanos, limit.needed_nanos)
    return list(map(text_from_nanos, amounts))


def _moment(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
