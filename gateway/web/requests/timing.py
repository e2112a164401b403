"""When what happened in an exchange: the steps of its waterfall, milliseconds from its arrival."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from billing.models import Exchange
from gateway.exchanges.charge import ChargeView
from gateway.exchanges.legs import AttemptLegs, is_for_staff
from gateway.exchanges.selectors import ExchangeView
from gateway.templatetags.farthing import DASH
from gateway.web.requests.rows import FIRST_ERROR_STATUS

OWN, WAIT, STREAM, FAILED, COUNT = "own", "wait", "stream", "failed", "count"


@dataclass(frozen=True, slots=True)
class Step:
    """`kind` is the drawing's: own work, waiting, streaming, a failed attempt, counting."""

    name: str
    at_ms: float
    took_ms: float
    kind: str


def steps_of(view: ExchangeView) -> tuple[Step, ...]:
    return tuple(_steps(view))


def first_token_ms(view: ExchangeView) -> float | None:
    """To a tenth where the legs are kept, else to the millisecond."""
    kept = view.legs.attempts[-1].response.at_ms if view.legs.attempts else None
    first = view.exchange.first_byte_ms
    return kept if kept is not None and first is not None else first


def _steps(view: ExchangeView) -> Iterator[Step]:
    exchange = view.exchange
    attempts: Sequence[dict[str, Any]] = exchange.attempts
    legs = {attempt.number: attempt for attempt in view.legs.attempts}
    last_ms = float(exchange.duration_ms or 0)
    starts = [_started_ms(attempt, legs) for attempt in attempts]
    yield Step(_admission(exchange), 0.0, starts[0] if starts else last_ms, OWN)
    for attempt in attempts:
        yield from _attempt(attempt, legs.get(attempt["n"]), exchange)
    if view.charge is not None and attempts:
        yield _settling(view.charge, exchange, last_ms)


def _admission(exchange: Exchange) -> str:
    if not exchange.attempts and exchange.status_code is not None:
        return f"Refused with {exchange.status_code}"
    return "Authenticate, read, resolve, limits, hold"


def _attempt(
    attempt: dict[str, Any], legs: AttemptLegs | None, exchange: Exchange
) -> Iterator[Step]:
    start = _started_ms(attempt, {} if legs is None else {attempt["n"]: legs})
    first = attempt.get("first_byte_ms")
    if first is not None and legs is not None and legs.response.at_ms is not None:
        first = legs.response.at_ms
    end = max(float(attempt.get("ended_ms", start)), first or 0, start)
    title = f"Attempt {attempt['n']}, {attempt.get('vendor', DASH)}"
    failure = _failure(attempt)
    if failure is not None:
        yield Step(f"{title}: {failure}", start, end - start, FAILED)
        return
    yield Step(f"{title}: first byte", start, (first or end) - start, WAIT)
    if first is not None:
        what = "stream" if exchange.is_stream else "answer"
        yield Step(f"Attempt {attempt['n']}: {what}", first, end - first, STREAM)


def _failure(attempt: dict[str, Any]) -> str | None:
    status, error = attempt.get("status"), attempt.get("error")
    if is_for_staff(status):
        return "refused our account"
    if status is None:
        return f"{error or 'no answer'}, no byte"
    if status >= FIRST_ERROR_STATUS:
        return str(status)
    return None if error is None or attempt.get("first_byte_ms") is not None else str(error)


def _settling(charge: ChargeView, exchange: Exchange, ended_ms: float) -> Step:
    took_ms = max(_ms(exchange.created_at, charge.settled_at) - ended_ms, 0.0)
    if charge.is_estimated:
        return Step("Worker counts the tokens, settles", ended_ms, took_ms, COUNT)
    became = "charge" if charge.charge_nanos else "released"
    name = f"Settle: hold → {became}" if exchange.hold_nanos else "Settle"
    return Step(name, ended_ms, took_ms, OWN)


def _started_ms(attempt: dict[str, Any], legs: dict[int, AttemptLegs]) -> float:
    kept = legs.get(attempt["n"])
    exact = None if kept is None else kept.request.at_ms
    return float(attempt.get("started_ms", 0)) if exact is None else exact


def _ms(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds() * 1_000
