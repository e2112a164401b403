"""The checks, in the order in which they are made: cheap and telling ones first."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from gateway.qualification import authored, judging
from gateway.qualification.answers import (
    BrokenAnswerError,
    CannotProbeError,
    JsonObject,
    Streamed,
    Whole,
)
from gateway.qualification.bounds import MAX_EVENTS_KEPT
from gateway.qualification.findings import Evidence, Finding, failed, undecided
from gateway.qualification.leaving import leave_and_watch, show_of
from gateway.qualification.probe import Prober

CONTEXT_SHARE: Final = 2  # a long prompt fills at most one part of so many of the context


@dataclass(frozen=True, slots=True)
class Subject:
    """One model at a vendor, and what the catalog says of it."""

    model: str
    family: str | None = None
    context_tokens: int = 131_072
    accepts_stream_options: bool = True


Answer = TypeVar("Answer", Whole, Streamed)
Made = Callable[[Prober, Subject], Awaitable[Evidence]]


@dataclass(frozen=True, slots=True)
class Check:
    """Without a required check nothing passes: it must have passed, not just not have failed."""

    id: str
    is_required: bool
    make: Made


async def _arithmetic(prober: Prober, subject: Subject) -> Evidence:
    body = authored.plain(subject.model, authored.ARITHMETIC)
    return await _judged_whole(prober, body, judging.arithmetic)


async def _json(prober: Prober, subject: Subject) -> Evidence:
    body = authored.plain(subject.model, authored.JSON_OBJECT)
    return await _judged_whole(prober, body, judging.json_object)


async def _stream(prober: Prober, subject: Subject) -> Evidence:
    body = authored.streamed(subject.model, authored.JSON_OBJECT)
    return await _judged_stream(prober, body, judging.stream)


async def _include_usage(prober: Prober, subject: Subject) -> Evidence:
    body = authored.with_usage(subject.model)
    if not subject.accepts_stream_options:
        words = "the catalog says that this vendor refuses stream_options"
        return Evidence(undecided(words), body)
    return await _judged_stream(prober, body, judging.include_usage)


async def _usage(prober: Prober, subject: Subject) -> Evidence:
    body = authored.in_several_scripts(subject.model)

    def judge(answer: Whole) -> Finding:
        return judging.usage(answer, body, model=subject.model, family=subject.family)

    return await _judged_whole(prober, body, judge)


async def _tools(prober: Prober, subject: Subject) -> Evidence:
    def judge(answer: Whole) -> Finding:
        return judging.tools(answer, authored.TOOL_NAME, authored.TOOL_PARAMETER)

    return await _judged_whole(prober, authored.with_tool(subject.model), judge)


async def _error_shape(prober: Prober, subject: Subject) -> Evidence:
    body = authored.malformed(subject.model)
    return await _learnt(body, prober.ask_badly(body), judging.error_shape, _body_of)


async def _long_input(prober: Prober, subject: Subject) -> Evidence:
    words = min(authored.LONG_INPUT_WORDS, subject.context_tokens // CONTEXT_SHARE)
    body = authored.long(subject.model, words)
    return await _judged_whole(prober, body, lambda answer: judging.long_input(answer, words))


async def _first_token(prober: Prober, subject: Subject) -> Evidence:
    body = authored.streamed(subject.model, authored.ARITHMETIC)
    limit_ms = prober.bounds.first_token_ms
    return await _judged_stream(prober, body, lambda answer: judging.first_token(answer, limit_ms))


async def _cancel(prober: Prober, subject: Subject) -> Evidence:
    tokens = authored.ENDLESS_ANSWER_TOKENS
    body = authored.streamed(subject.model, authored.ENDLESS, max_tokens=tokens)
    try:
        gauge = await show_of(prober)
        if await gauge():
            return Evidence(undecided("the vendor is working on other answers"), body)
        running = await prober.begin(body)
        try:
            finding = await leave_and_watch(prober, running, gauge)
        finally:
            running.leave()
    except CannotProbeError as reason:
        return Evidence(undecided(str(reason)), body)
    except BrokenAnswerError as reason:
        return Evidence(failed(str(reason)), body)
    return Evidence(finding, body, _events_of(running.streamed))


CHECKS: Final[tuple[Check, ...]] = (
    Check("arithmetic", True, _arithmetic),
    Check("json", True, _json),
    Check("stream", True, _stream),
    Check("include_usage", False, _include_usage),
    Check("usage", False, _usage),
    Check("tools", False, _tools),
    Check("error_shape", True, _error_shape),
    Check("cancel", False, _cancel),
    Check("long_input", False, _long_input),
    Check("first_token", False, _first_token),
)


# --- asking and judging -----------------------------------------------------------------------


async def _judged_whole(
    prober: Prober, body: JsonObject, judge: Callable[[Whole], Finding]
) -> Evidence:
    return await _learnt(body, prober.ask(body), judge, _body_of)


async def _judged_stream(
    prober: Prober, body: JsonObject, judge: Callable[[Streamed], Finding]
) -> Evidence:
    return await _learnt(body, prober.stream(body), judge, _events_of)


async def _learnt(
    body: JsonObject,
    asking: Awaitable[Answer],
    judge: Callable[[Answer], Finding],
    show: Callable[[Answer], Any],
) -> Evidence:
    """The finding of one answer; where none came, whether that is the vendor's fault."""
    try:
        answer = await asking
    except CannotProbeError as reason:
        return Evidence(undecided(str(reason)), body)
    except BrokenAnswerError as reason:
        return Evidence(failed(str(reason)), body)
    return Evidence(judge(answer), body, show(answer))


def _body_of(answer: Whole) -> Any:
    return answer.value


def _events_of(answer: Streamed) -> JsonObject:
    """A stream as it is kept: how many events there were, the first of them and the last."""
    values = answer.values
    half = MAX_EVENTS_KEPT // 2
    kept = values if len(values) <= MAX_EVENTS_KEPT else [*values[:half], *values[-half:]]
    return {
        "status": answer.status,
        "content_type": answer.content_type,
        "event_count": len(values),
        "events": kept,
        "done": answer.is_done,
    }
