"""Is an answer what was asked for? Pure: an answer in, a finding out."""

import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from billing.estimation import TEMPLATE_EXACT, estimate
from billing.usage import find_usage, read_usage
from gateway.qualification.answers import JsonObject, Streamed, Whole
from gateway.qualification.findings import PASSED, Finding, failed, undecided
from gateway.relay.assemble import CHUNK, has_output

CUT_BELOW: Final = 0.8  # of the words of a long prompt; vocabularies differ by less
ERROR_CHARACTERS: Final = 200
EVENT_STREAM: Final = "text/event-stream"

_FOUR: Final = re.compile(r"(?<![\d.,])4(?!\d|[.,]\d)")
_OBJECT: Final = {"city": "Paris", "count": 3}


def answer_flaw(answer: Whole) -> Finding | None:
    """What keeps an answer from being judged at all."""
    if answer.status != HTTPStatus.OK:
        return failed(f"answered {answer.status}{_said(answer)}")
    if answer.completion is None:
        return failed(f"the answer is no chat.completion{_said(answer)}")
    return None


def arithmetic(answer: Whole) -> Finding:
    return answer_flaw(answer) or _text_of(answer, _is_four, "does not say that it is 4")


def json_object(answer: Whole) -> Finding:
    return answer_flaw(answer) or _text_of(answer, _is_the_object, "is not exactly the JSON")


def stream(answer: Streamed) -> Finding:
    """The events of one choice, each a chunk, with an end that says so."""
    flaws = [
        (answer.status != HTTPStatus.OK, f"answered {answer.status}"),
        (answer.is_one_body, "the answer is one JSON body instead of events"),
        (
            not answer.content_type.lower().startswith(EVENT_STREAM),
            f"the content type is {answer.content_type!r}",
        ),
        (len(answer.chunks) < len(answer.values), "an event is no JSON object"),
        (any("error" in chunk for chunk in answer.chunks), "an event is an error"),
        (any(c.get("object") != CHUNK for c in _with_choices(answer)), f"an event is no {CHUNK}"),
        (not answer.pieces, "no event carries a part of the answer"),
        (not _finish_reason(answer.completion), "there is no finish_reason"),
        (not answer.is_done, "there is no [DONE] at the end"),
    ]
    return _first_of(flaws)


def include_usage(answer: Streamed) -> Finding:
    """Usage that a charge can be made of, when it was asked for."""
    if answer.status != HTTPStatus.OK:
        return failed(f"answered {answer.status} to stream_options.include_usage")
    if answer.usage is None:
        return failed("the stream carries no usage although it was asked for")
    reading = read_usage(answer.usage, has_output=answer.pieces > 0)
    if not reading.is_complete:
        return failed("the usage cannot be true: a count is missing or zero")
    return PASSED


def usage(answer: Whole, request: JsonObject, *, model: str, family: str | None) -> Finding:
    """The vendor's count is ours, where we know the model's vocabulary and template."""
    if flaw := answer_flaw(answer):
        return flaw
    completion = answer.completion or {}
    raw = find_usage(completion)
    if raw is None:
        return failed("the answer has no usage")
    counted = estimate(request, completion, model=model, family=family, max_output_tokens=None, n=1)
    reading = read_usage(raw, has_output=any(map(has_output, completion["choices"])))
    observed = {
        "vendor": {"prompt_tokens": reading.prompt, "completion_tokens": reading.completion},
        "ours": {
            "prompt_tokens": counted.prompt_tokens,
            "completion_tokens": counted.completion_tokens,
        },
        "family": counted.family,
        "method": counted.method,
    }
    if not reading.is_complete:
        return failed("the usage cannot be true: a count is missing or zero", **observed)
    if counted.method != TEMPLATE_EXACT or counted.flags:
        return undecided(f"we have no exact count for family {counted.family}", **observed)
    if observed["vendor"] != observed["ours"]:
        return failed("the vendor's count is not ours", **observed)
    return Finding(passed=True, observed=observed)


def tools(answer: Whole, name: str, required: str) -> Finding:
    """A model that answers in words has not failed: only a call that cannot be used has."""
    if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return undecided(f"the vendor takes no tools: {answer.status}{_said(answer)}")
    if flaw := answer_flaw(answer):
        return flaw
    calls = _message(answer.completion).get("tool_calls")
    if not calls:
        return undecided("the model answered in words, so its calls were not seen")
    call = calls[0] if isinstance(calls, list) and isinstance(calls[0], dict) else {}
    function = call.get("function")
    called = function if isinstance(function, dict) else {}
    flaws = [
        (called.get("name") != name, "the call is not to the function that was offered"),
        (
            required not in _arguments(called),
            "the call's arguments are no JSON object with what is required",
        ),
        (not call.get("id"), "the call has no id"),
        (
            _finish_reason(answer.completion or {}) != "tool_calls",
            "the finish_reason is not tool_calls",
        ),
    ]
    return _first_of(flaws)


def error_shape(answer: Whole) -> Finding:
    """A bad request is refused with a 4xx and an object that says why."""
    if answer.status < HTTPStatus.BAD_REQUEST:
        return failed(f"answered {answer.status} to a request whose messages are no list")
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return failed(f"answered {answer.status} to a bad request, which clients would retry")
    error = answer.value.get("error") if isinstance(answer.value, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return failed("the body is not {error: {message}}")
    return PASSED


def long_input(answer: Whole, words: int) -> Finding:
    """A vendor that cuts a long prompt without a word is found by its own count."""
    if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return failed(f"refused a prompt of {words} words: {answer.status}{_said(answer)}")
    if flaw := answer_flaw(answer):
        return flaw
    prompt = read_usage(find_usage(answer.completion or {}), has_output=True).prompt
    observed = {"words": words, "prompt_tokens": prompt}
    if prompt is None:
        return undecided("without usage, a prompt that was cut cannot be told", **observed)
    if prompt < words * CUT_BELOW:
        return failed(f"of {words} words the vendor read {prompt} tokens", **observed)
    return Finding(passed=True, observed=observed)


def first_token(answer: Streamed, limit_ms: int) -> Finding:
    if answer.status != HTTPStatus.OK:
        return failed(f"answered {answer.status}")
    if answer.first_token_ms is None:
        return failed("no event carries a part of the answer")
    observed = {"first_token_ms": answer.first_token_ms, "limit_ms": limit_ms}
    if answer.first_token_ms > limit_ms:
        return failed(f"the first token took {answer.first_token_ms} ms", **observed)
    return Finding(passed=True, observed=observed)


# --- leaves -----------------------------------------------------------------------------------


def _first_of(flaws: list[tuple[bool, str]]) -> Finding:
    return next((failed(reason) for is_so, reason in flaws if is_so), PASSED)


def _text_of(answer: Whole, is_right: Callable[[str], bool], words: str) -> Finding:
    text = _message(answer.completion).get("content")
    text = text if isinstance(text, str) else ""
    if is_right(text):
        return PASSED
    if not text and _finish_reason(answer.completion or {}) == "length":
        return undecided("the answer was cut before it said anything")
    return failed(f"the answer {words}")


def _is_four(text: str) -> bool:
    return _FOUR.search(text) is not None


def _is_the_object(text: str) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(found == _OBJECT)


def _message(completion: JsonObject | None) -> JsonObject:
    message = _first_choice(completion or {}).get("message")
    return message if isinstance(message, dict) else {}


def _first_choice(completion: JsonObject) -> JsonObject:
    choices = completion.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _finish_reason(completion: JsonObject) -> str:
    return str(_first_choice(completion).get("finish_reason") or "")


def _with_choices(answer: Streamed) -> list[JsonObject]:
    return [chunk for chunk in answer.chunks if chunk.get("choices")]


def _arguments(function: JsonObject) -> JsonObject:
    try:
        found = json.loads(function.get("arguments") or "")
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _said(answer: Whole) -> str:
    """The words of an error, for people who read the report."""
    value = answer.value
    error = value.get("error", value) if isinstance(value, dict) else value
    words = error.get("message") if isinstance(error, dict) else error
    return f": {' '.join(words.split())[:ERROR_CHARACTERS]}" if isinstance(words, str) else ""
