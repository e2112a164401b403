"""Usage that the vendor did not report, counted by us: what it is and how sure we are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from billing.estimation.bounds import bound
from billing.estimation.corrections import UNCHANGED, Correction, SideCorrection
from billing.estimation.family import Family
from billing.estimation.reading import (
    MEDIA,
    UNKNOWN_PARTS,
    Choice,
    Prompt,
    read_choices,
    read_prompt,
)
from billing.estimation.registry import family_of
from billing.estimation.text import counter
from billing.estimation.vocabularies import VOCABULARIES

RULE_VERSION = "2026-12-01"
"""Of all families' rules: a change of any that changes a count is a new version."""

Method = Literal["template-exact", "vocabulary-exact", "approximate"]
TEMPLATE_EXACT: Method = "template-exact"
VOCABULARY_EXACT: Method = "vocabulary-exact"
APPROXIMATE: Method = "approximate"

REASONING_UNKNOWN = "reasoning_unknown"
TOOLS = "tools"
SCHEMA = "schema"
CAPPED = "capped"

_ERROR_PLACES = Decimal("0.001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How something was counted. `expected_error` is a fraction; None where it has no bound.

    `correction` is the version of what the vendor's own counts have taught, where it changed this.
    """

    method: Method
    family: str
    vocabulary: str
    vocabulary_sha256: str
    rule_version: str
    flags: tuple[str, ...]
    expected_error: Decimal | None
    correction: int | None = None

    def sentence(self) -> str:
        """How it was counted, for the user's page."""
        title = family_of("", self.family).title
        how = {
            TEMPLATE_EXACT: f"with the vocabulary and chat template of {title}",
            VOCABULARY_EXACT: f"with the vocabulary of {title}; its frame of tools or media is"
            " known only from measurement",
            APPROXIMATE: f"by approximation: {title} has no public vocabulary, {self.vocabulary}"
            " stands in for it",
        }[self.method]
        learnt = ""
        if self.correction is not None:
            version = f"correction {self.correction}"
            learnt = f", then corrected by what this vendor has reported before ({version})"
        return f"Counted {how}{learnt}{self._error_words()}."

    def _error_words(self) -> str:
        if REASONING_UNKNOWN in self.flags:
            return "; hidden reasoning could not be counted, so this is a lower bound"
        if self.expected_error is None:
            return "; the expected error is not known"
        if not self.expected_error:
            return "; expected to be exact"
        return f"; expected error about {self.expected_error * 100:.0f} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Counted):
    """Tokens of one side."""

    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Counted):
    """Both sides of an exchange, as they are stored on the row that they price."""

    prompt_tokens: int
    completion_tokens: int


def count_prompt(request: Mapping[str, Any], *, model: str, family: str | None = None) -> Count:
    """Tokens of a chat-completion body as it was sent to the vendor, without a correction."""
    found = family_of(model, family)
    prompt = read_prompt(request, model.lower())
    tokens = found.prompt(prompt, counter(found.vocabulary))
    flags = _prompt_flags(prompt)
    error = found.errors.tools if {TOOLS, SCHEMA} & set(flags) else found.errors.plain
    return _count(found, max(tokens, 0), flags, None if _unmeasured(flags) else error)


def count_completion(
    completion: Mapping[str, Any] | None,
    *,
    model: str,
    family: str | None = None,
    finish_reason: str | None = None,
    request: Mapping[str, Any] | None = None,
) -> Count:
    """Tokens of an assembled `chat.completion`; 0 where nothing was delivered.

    `finish_reason` is for choices that have none. An error beside the choices is never counted.
    """
    found = family_of(model, family)
    prompt = read_prompt(request or {}, model.lower())
    delivered = [c for c in read_choices(completion, finish_reason) if c.delivered]
    tally = counter(found.vocabulary)
    tokens = sum(found.completion(choice, prompt, tally) for choice in delivered)
    flags = _completion_flags(found, prompt, delivered)
    error = None if REASONING_UNKNOWN in flags else found.errors.completion
    return _count(found, max(tokens, 0), flags, error)


def corrected_prompt(counted: Count, correction: Correction | None) -> Count:
    """The count as it is after the correction; media are none of what one is learnt from."""
    if correction is None or _unmeasured(counted.flags):
        return counted
    return _corrected(counted, correction, correction.prompt, correction.prompt_error)


def corrected_completion(counted: Count, correction: Correction | None) -> Count:
    """The count as it is after the correction. Hidden reasoning stays uncounted."""
    if correction is None:
        return counted
    error = None if REASONING_UNKNOWN in counted.flags else correction.completion_error
    return _corrected(counted, correction, correction.completion, error)


def estimate(
    request: Mapping[str, Any],
    completion: Mapping[str, Any] | None,
    *,
    model: str,
    family: str | None = None,
    finish_reason: str | None = None,
    max_output_tokens: int | None,
    n: int,
    context_tokens: int | None = None,
    correction: Correction | None = None,
) -> Estimate:
    """Both counts of an exchange, never above what the request and the model allow.

    `max_output_tokens` bounds one choice, `n` is how many were asked for, `context_tokens` is the
    model's window, `correction` what was in force for this vendor's model.
    """
    prompt = corrected_prompt(count_prompt(request, model=model, family=family), correction)
    answer = count_completion(
        completion, model=model, family=family, finish_reason=finish_reason, request=request
    )
    answer = corrected_completion(answer, correction)
    cap = None if max_output_tokens is None else max(max_output_tokens, 0) * max(n, 1)
    prompt_tokens = _capped(prompt.tokens, context_tokens)
    completion_tokens = _capped(answer.tokens, cap)
    flags = dict.fromkeys(prompt.flags + answer.flags)
    if (prompt_tokens, completion_tokens) != (prompt.tokens, answer.tokens):
        flags[CAPPED] = None
    return Estimate(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        method=max(prompt.method, answer.method, key=_METHODS.index),
        family=prompt.family,
        vocabulary=prompt.vocabulary,
        vocabulary_sha256=prompt.vocabulary_sha256,
        rule_version=prompt.rule_version,
        flags=tuple(flags),
        expected_error=_joint_error(prompt, answer),
        correction=answer.correction if prompt.correction is None else prompt.correction,
    )


def prompt_bound(
    request: Mapping[str, Any],
    *,
    model: str,
    family: str | None = None,
    correction: Correction | None = None,
) -> int:
    """An upper bound of the corrected `count_prompt`, cheap enough for every request: for holds."""
    found = family_of(model, family)
    tally = bound(found.vocabulary)
    tally.start()
    tokens = max(found.prompt(read_prompt(request, model.lower()), tally), 0)
    return tokens if correction is None else correction.prompt.bound(tokens)


def count_text(text: str, *, model: str, family: str | None = None) -> int:
    """Tokens of a part of an answer, without what frames an answer: for a stream that runs."""
    return counter(family_of(model, family).vocabulary)(text)


_METHODS: tuple[Method, ...] = (TEMPLATE_EXACT, VOCABULARY_EXACT, APPROXIMATE)


def _corrected(
    counted: Count, correction: Correction, side: SideCorrection, error: Decimal | None
) -> Count:
    learnt_on = (correction.family, correction.rule_version)
    if side == UNCHANGED or learnt_on != (counted.family, counted.rule_version):
        return counted
    return replace(
        counted,
        tokens=side.of(counted.tokens),
        expected_error=error,
        correction=correction.version,
    )


def _capped(tokens: int, cap: int | None) -> int:
    return tokens if cap is None else min(tokens, cap)


def _joint_error(prompt: Count, answer: Count) -> Decimal | None:
    if prompt.expected_error is None or answer.expected_error is None:
        return None
    total = prompt.tokens + answer.tokens
    if not total:
        return Decimal(0)
    wrong = prompt.tokens * prompt.expected_error + answer.tokens * answer.expected_error
    return (wrong / total).quantize(_ERROR_PLACES)


def _prompt_flags(prompt: Prompt) -> tuple[str, ...]:
    called = any(message.tool_calls for message in prompt.messages)
    media = any(message.images or message.other_media for message in prompt.messages)
    unknown = any(message.unknown_parts for message in prompt.messages)
    flags = {
        TOOLS: called or bool(prompt.tools),
        SCHEMA: prompt.schema is not None,
        MEDIA: media,
        UNKNOWN_PARTS: unknown,
    }
    return tuple(flag for flag, present in flags.items() if present)


def _completion_flags(family: Family, prompt: Prompt, delivered: list[Choice]) -> tuple[str, ...]:
    hidden = bool(delivered) and family.hides_reasoning(prompt)
    called = any(choice.tool_calls for choice in delivered)
    return (REASONING_UNKNOWN,) * hidden + (TOOLS,) * called


def _unmeasured(flags: tuple[str, ...]) -> bool:
    return MEDIA in flags or UNKNOWN_PARTS in flags


def _count(family: Family, tokens: int, flags: tuple[str, ...], error: Decimal | None) -> Count:
    return Count(
        tokens=tokens,
        method=_method(family, flags),
        family=family.name,
        vocabulary=family.vocabulary,
        vocabulary_sha256=VOCABULARIES[family.vocabulary].file.sha256,
        rule_version=RULE_VERSION,
        flags=flags,
        expected_error=error,
    )


def _method(family: Family, flags: tuple[str, ...]) -> Method:
    if not family.own_vocabulary:
        return APPROXIMATE
    deduced = _unmeasured(flags) or (bool({TOOLS, SCHEMA} & set(flags)) and not family.public_tools)
    return TEMPLATE_EXACT if family.public_template and not deduced else VOCABULARY_EXACT
