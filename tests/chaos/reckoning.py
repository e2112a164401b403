"""At the end: our books against the vendor's own journal, and against what clients have read."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from tests.chaos.traffic import Asked, messages_of

SHOWN = 5  # of each kind of fault


@dataclass
class Books:
    """What must be empty, and figures that are printed."""

    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    figures: dict[str, Any] = field(default_factory=dict)

    def fault(self, rule: str, words: object) -> None:
        self.faults[rule].append(str(words))

    def lines(self) -> Iterator[str]:
        for rule, found in self.faults.items():
            yield f"! {rule}: {len(found)}"
            yield from (f"    {words}" for words in found[:SHOWN])


@dataclass(frozen=True)
class Billed:
    """What a mark's exchanges cost their tenant, late corrections and shortfalls included."""

    exchanges: list[Any]
    moved: dict[Any, int]

    @property
    def nanos(self) -> int:
        return sum(
            exchange.charge.charge_nanos
            + exchange.charge.shortfall_nanos
            + self.moved.get(exchange.id, 0)
            for exchange in self.exchanges
        )

    @property
    def vendor_calls_at_most(self) -> int:
        """An exchange whose gateway died has no list of its attempts: it had its one route's."""
        counted = [e for e in self.exchanges if e.charge.outcome != "refused"]
        return sum(max(len(exchange.attempts), 1) for exchange in counted)

    @property
    def died(self) -> int:
        return sum(exchange.charge.outcome == "gateway_died" for exchange in self.exchanges)


def reckon(journal: Path, asked: list[Asked]) -> Books:
    from billing.audit import audit
    from billing.models import Account, EstimateJob, Exchange, LateSettlement

    books = Books()
    report = audit()
    for difference in report.differences:
        books.fault(f"audit: {difference.rule}", difference.row)
    for exchange in Exchange.objects.exclude(state="settled"):
        books.fault("exchange that is not settled", exchange.id)
    for account in Account.objects.filter(held_nanos__gt=0):
        books.fault("money still held", account)
    for job in EstimateJob.objects.all():
        books.fault("estimate job left", job)
    for late in LateSettlement.objects.filter(corrected_at=None):
        books.fault("late settlement not corrected", late)

    calls = _by_mark(journal)
    billed = _billed()
    for mark, of_mark in calls.items():
        _check_calls(books, mark, of_mark, billed.get(mark))
    for mark, ours in billed.items():
        _check_bill(books, mark, calls.get(mark, []), ours)
    for one in asked:
        _check_client(books, one, calls.get(one.mark, []), billed.get(one.mark))
    books.figures = _figures(report.figures, calls, billed, asked)
    return books


def _by_mark(journal: Path) -> dict[str, list[dict[str, Any]]]:
    calls = defaultdict(list)
    for line in journal.read_bytes().splitlines():
        call = orjson.loads(line)
        if call["user"] is not None:
            calls[call["user"]].append(call)
    return calls


def _billed() -> dict[str, Billed]:
    from billing.models import Exchange, LateSettlement

    moved = dict(
        LateSettlement.objects.exclude(corrected_at=None).values_list("exchange_id", "moved_nanos")
    )
    by_mark = defaultdict(list)
    rows = Exchange.objects.select_related("charge", "price").exclude(client_request_id=None)
    for exchange in rows:
        by_mark[exchange.client_request_id].append(exchange)
    return {mark: Billed(exchanges, moved) for mark, exchanges in by_mark.items()}


def _check_calls(books: Books, mark: str, calls: list[dict], ours: Billed | None) -> None:
    if ours is None:
        books.fault("vendor call without an exchange", mark)
    elif len(calls) > ours.vendor_calls_at_most:
        books.fault("more vendor calls than attempts", f"{mark}: {len(calls)}")


def _check_bill(books: Books, mark: str, calls: list[dict], ours: Billed) -> None:
    price = next((e.price for e in ours.exchanges if e.price is not None), None)
    most_nanos = sum(_most(call, mark, price) for call in calls) if price is not None else 0
    if ours.nanos > most_nanos:
        words = f"{mark}: {ours.nanos} > {most_nanos}, {ours.exchanges[0].model}, {calls}"
        books.fault("billed above what the vendor produced", words)


def _check_client(books: Books, one: Asked, calls: list[dict], ours: Billed | None) -> None:
    """Whoever has read an answer to its end pays for it in full, and for one of a key only."""
    if len(one.texts) > 1:
        books.fault("one key, several answers", one.mark)
    if not one.is_whole:
        return
    finished = [call for call in calls if call["is_finished"]]
    if ours is None or not finished:
        books.fault("answer that nobody knows of", one.mark)
        return
    price = next(e.price for e in ours.exchanges if e.price is not None)
    due_nanos = _due(finished[0], one.mark, price)
    if ours.nanos < due_nanos:
        rows = [(e.charge.outcome, e.charge.charge_nanos) for e in ours.exchanges]
        books.fault(
            "answer read to its end and not billed in full",
            f"{one.mark} {one.model}: {ours.nanos} < {due_nanos} {rows}",
        )
    if one.is_keyed and len(finished) > 1 + ours.died:
        books.fault("one key, several vendor calls", f"{one.mark}: {len(finished)}")
    if len(calls) == len(ours.exchanges) == 1 and not ours.died and ours.nanos != due_nanos:
        books.fault("undisturbed and not exact", f"{one.mark}: {ours.nanos} != {due_nanos}")


# --- what a call may cost ---------------------------------------------------------------------


@cache
def _counted(model: str, family: str | None, mark: str, tokens: int) -> tuple[int, int]:
    """Our own count of the prompt, and of what the vendor had handed out of its answer."""
    from billing.estimation import count_completion, count_prompt

    request = {"model": model, "messages": messages_of(mark)}
    prompt = count_prompt(request, model=model, family=family)
    if not tokens:
        return prompt.tokens, 0
    completion = count_completion(
        _handed_out(model, tokens), model=model, family=family, request=request
    )
    return prompt.tokens, completion.tokens


def _handed_out(model: str, tokens: int) -> dict[str, Any]:
    from gateway.benchecho import answers
    from gateway.benchecho.behaviours import Output, behaviour_of

    behaviour = behaviour_of(model)
    if behaviour.output in {Output.TOOL_CALL, Output.STRUCTURED}:
        return orjson.loads(answers.completion(_request(model, "x"), behaviour))
    pieces = tokens // answers.TOKENS_PER_REPETITION
    thoughts = answers.REASONING_REPETITIONS if behaviour.output is Output.REASONING else 0
    message = {"role": "assistant", "content": answers.PHRASE * max(pieces - thoughts, 0)}
    if thoughts:
        message["reasoning_content"] = answers.PHRASE * min(pieces, thoughts)
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def _request(model: str, mark: str):
    from gateway.benchecho.answers import ChatRequest

    return ChatRequest(model, messages_of(mark), is_stream=False, include_usage=True)


@cache
def _families() -> dict[str, str | None]:
    from gateway.models import Route

    rows = Route.objects.select_related("model")
    return {f"{route.model.name}/{route.vendor_model}": route.model.family for route in rows}


def _most(call: dict, mark: str, price) -> int:
    """The cost of what was produced: as the vendor counts it or as we do, whichever is more."""
    from billing.rating import cost_nanos, version_of
    from billing.usage import Usage

    version = version_of(price)
    family = _families().get(f"{price.model}/{call['model']}")
    prompt, completion = _counted(call["model"], family, mark, call["completion_tokens"])
    prompt = max(prompt, call["prompt_tokens"])
    completion = max(completion, call["completion_tokens"])
    return max(
        cost_nanos(Usage(input_tokens=prompt, output_tokens=completion), version),
        cost_nanos(Usage(input_tokens=prompt, reasoning_tokens=completion), version),
    )


def _due(call: dict, mark: str, price) -> int:
    """What a whole answer costs: by the vendor's usage, or by our count where it says none."""
    from billing.rating import cost_nanos, version_of
    from billing.usage import Usage, read_usage
    from gateway.benchecho.answers import usage_of
    from gateway.benchecho.behaviours import behaviour_of

    said = usage_of(_request(call["model"], mark), behaviour_of(call["model"]))
    reading = read_usage(said, has_output=True, cached_beside=None)
    if reading.is_complete:
        return cost_nanos(reading.usage, version_of(price))
    family = _families().get(f"{price.model}/{call['model']}")
    prompt, completion = _counted(call["model"], family, mark, call["completion_tokens"])
    return cost_nanos(Usage(input_tokens=prompt, output_tokens=completion), version_of(price))


# --- figures ----------------------------------------------------------------------------------


def _figures(
    ledger: dict[str, int], calls: dict[str, list], billed: dict[str, Billed], asked: list[Asked]
) -> dict[str, Any]:
    exchanges = [exchange for ours in billed.values() for exchange in ours.exchanges]
    of_vendor = [call for of_mark in calls.values() for call in of_mark]
    told = [e.charge for e in exchanges if e.charge.usage_source != "none"]
    moved = {
        e.id: ours.moved[e.id]
        for ours in billed.values()
        for e in ours.exchanges
        if e.id in ours.moved
    }
    return {
        "ledger": ledger,
        "wishes of clients": len(asked),
        "  how they ended": dict(Counter(one.outcome for one in asked).most_common()),
        "exchanges": len(exchanges),
        "  by outcome": dict(Counter(e.charge.outcome for e in exchanges).most_common()),
        "  by source of usage": dict(Counter(e.charge.usage_source for e in exchanges)),
        "  settled late": len(moved),
        "  moved by it, nanos": sum(moved.values()),
        "vendor calls": len(of_vendor),
        "  answered whole": sum(call["is_finished"] for call in of_vendor),
        "vendor's output tokens": sum(call["completion_tokens"] for call in of_vendor),
        "billed output tokens": sum(c.output_tokens + c.reasoning_tokens for c in told),
        "charged, nanos": sum(ours.nanos for ours in billed.values()),
    }
