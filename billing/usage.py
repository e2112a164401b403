"""Token usage as a vendor reported it, normalised into classes that never overlap.

Vendors agree on little: cached tokens lie inside the prompt count or beside it, reasoning inside
the completion count or on top, counts come as strings, negative, null, or all zero. What was
received is kept beside what is used, and a flag says where the two disagree.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

MAX_TOKENS = 10**12
"""Above this a count is absurd, and what it would cost could pass what a ledger's column holds."""
MAX_DIGITS = 13

USAGE_MISMATCH = "usage_mismatch"
PROMPT_ESTIMATED = "prompt_estimated"
COMPLETION_ESTIMATED = "completion_estimated"

JsonObject = dict[str, Any]
Names = tuple[str, ...]

# Where the dialects write what, the surest name first: OpenAI's, Anthropic's, DeepSeek's,
# Bedrock's, Gemini's, Ollama's and those of what translates between them.
PROMPT: Names = ("prompt_tokens", "input_tokens", "promptTokens", "inputTokens")
PROMPT += ("promptTokenCount", "prompt_token_count", "prompt_eval_count")
COMPLETION: Names = ("completion_tokens", "output_tokens", "completionTokens", "outputTokens")
COMPLETION += ("candidatesTokenCount", "candidates_token_count", "eval_count")
TOTAL: Names = ("total_tokens", "totalTokens", "totalTokenCount", "total_token_count")
CACHED: Names = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
CACHED += ("cache_read_tokens", "cacheReadInputTokens", "cachedContentTokenCount")
CACHED += ("cached_content_token_count",)
CACHED_DETAILS: Names = ("cached_tokens", "cache_read_tokens", "cache_read")
CACHE_WRITE: Names = ("cache_creation_input_tokens", "cache_write_tokens", "cacheWriteInputTokens")
CACHE_WRITE_DETAILS: Names = ("cache_write_tokens", "cache_creation_tokens", "cache_creation")
CACHE_WRITE_DETAILS += ("cache_creation_input_tokens", "cached_creation_tokens")
REASONING: Names = ("reasoning_tokens", "thoughtsTokenCount", "thoughts_token_count")
REASONING_DETAILS: Names = ("reasoning_tokens", "thinking_tokens", "reasoning")
PROMPT_DETAILS: Names = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
COMPLETION_DETAILS: Names = ("completion_tokens_details", "output_tokens_details")
COMPLETION_DETAILS += ("output_token_details",)
_NO_COUNTS = (None, 0, "", "0")
BESIDE_BY_NAME: Names = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Beside `input_tokens` these are Anthropic's, where no prompt count has its cache inside."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Disjoint token classes: each token is counted, and so priced, in exactly one of them.

    `input_tokens` were neither read from nor written to a cache, `output_tokens` are neither
    reasoning nor audio.
    """

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    image_input_tokens: int = 0
    audio_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    audio_output_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        return (
            self.input_tokens
            + self.cached_input_tokens
            + self.cache_write_tokens
            + self.image_input_tokens
            + self.audio_input_tokens
        )

    @property
    def completion_tokens(self) -> int:
        return self.output_tokens + self.reasoning_tokens + self.audio_output_tokens

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class UsageReading:
    """What a vendor's usage is worth.

    `prompt` and `completion` are None where the count must be estimated; the classes of that
    side of `usage` are then zero. `raw` is what was received, untouched.
    """

    prompt: int | None
    completion: int | None
    usage: Usage
    source: Literal["vendor", "missing"]
    flags: tuple[str, ...]
    raw: Any

    @property
    def is_complete(self) -> bool:
        return self.prompt is not None and self.completion is not None

    def with_estimates(self, *, prompt: int, completion: int) -> Usage:
        """Return the usage with estimates put in only where the vendor's count is missing."""
        usage = self.usage
        if self.prompt is None:
            usage = replace(usage, input_tokens=prompt)
        if self.completion is None:
            usage = replace(usage, output_tokens=completion)
        return usage


@dataclass(frozen=True, slots=True)
class _Counts:
    """The fields of one usage object, each None where absent, null or not a sane count."""

    prompt: int | None
    completion: int | None
    total: int | None
    cached: int
    cache_write: int
    reasoning: int
    image_input: int
    audio_input: int
    audio_output: int


def read_usage(raw: Any, *, has_output: bool, cached_beside: bool | None = None) -> UsageReading:
    """Normalise a vendor's usage object of any dialect; total on every JSON value.

    `has_output` says whether anything visible was produced: a zero count beside it is a lie.
    `cached_beside` is the vendor's setting: True where cache counts lie beside the prompt count,
    False where inside, None to let the arithmetic of `total_tokens` decide.
    """
    if not isinstance(raw, dict):
        return _missing(raw)
    counts = _read_counts(raw)
    if has_output:  # a zero is no count then: the total may say what it is
        counts = replace(counts, prompt=counts.prompt or None, completion=counts.completion or None)
    if cached_beside is None and counts.total is None and _is_beside_by_name(raw):
        cached_beside = True
    prompt, completion, agrees = _settle_totals(counts, cached_beside)
    if not prompt and not completion and has_output:
        return _missing(raw)
    if prompt == 0 and completion:
        prompt = None
    if completion is None and not has_output and prompt is not None:
        completion = 0
    if completion == 0 and has_output:
        completion = None
    return _reading(raw, counts, prompt, completion, agrees=agrees)


def find_usage(message: JsonObject) -> JsonObject | None:
    """Return the usage object of a completion or chunk, wherever this vendor puts it."""
    for usage in _places(message):
        if isinstance(usage, dict) and usage:
            return usage
    return None


def latest_usage(held: JsonObject | None, newer: JsonObject) -> JsonObject:
    """Return what counts after `newer` has come: of each count the last that is one.

    Some vendors send the prompt's count at the beginning and the completion's at the end, or end
    with zeros. A total is of its own object only.
    """
    counts = _read_counts(newer)
    if held is None or (counts.prompt and counts.completion):
        return newer
    kept = {name: value for name, value in held.items() if name not in TOTAL}
    return {**kept, **{name: value for name, value in newer.items() if value not in _NO_COUNTS}}


def _places(message: JsonObject) -> Iterator[Any]:
    yield message.get("usage")
    choices = message.get("choices")
    for choice in reversed(choices) if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            yield choice.get("usage")
            yield from map(_usage_of, (choice.get("delta"), choice.get("message")))
    yield from map(_usage_of, map(message.get, ("x_groq", "message", "delta", "response")))
    yield message.get("usageMetadata") or message.get("usage_metadata")


def _usage_of(holder: Any) -> Any:
    return holder.get("usage") if isinstance(holder, dict) else None


def _missing(raw: Any) -> UsageReading:
    flags = (PROMPT_ESTIMATED, COMPLETION_ESTIMATED)
    return UsageReading(None, None, Usage(), "missing", flags, raw)


def _count(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip()
        if len(text) > MAX_DIGITS or not (text.isascii() and text.isdigit()):
            return None
        value = int(text)
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TOKENS:
        return None
    return value


def _first_count(holder: JsonObject, names: Names) -> int | None:
    """The first that is a count; a zero only where no other name says more.

    Vendors fill in a standard name with zeros beside the name that they really use.
    """
    zero = None
    for name in names:
        count = _count(holder.get(name)) if name in holder else None
        if count:
            return count
        zero = count if zero is None else zero
    return zero


def _is_beside_by_name(raw: JsonObject) -> bool:
    return (
        "input_tokens" in raw
        and "prompt_tokens" not in raw
        and any(name in raw for name in BESIDE_BY_NAME)
    )


def _details(raw: JsonObject, names: Names) -> JsonObject:
    for name in names:
        details = raw.get(name)
        if isinstance(details, dict):
            return details
    return {}


def _read_counts(raw: JsonObject) -> _Counts:
    prompt, completion = _details(raw, PROMPT_DETAILS), _details(raw, COMPLETION_DETAILS)
    cached = _first_count(prompt, CACHED_DETAILS)
    cache_write = _first_count(raw, CACHE_WRITE)
    reasoning = _first_count(completion, REASONING_DETAILS)
    return _Counts(
        prompt=_first_count(raw, PROMPT),
        completion=_first_count(raw, COMPLETION),
        total=_first_count(raw, TOTAL),
        cached=cached or _first_count(raw, CACHED) or 0,
        cache_write=cache_write or _first_count(prompt, CACHE_WRITE_DETAILS) or 0,
        reasoning=reasoning or _first_count(raw, REASONING) or 0,
        image_input=_count(prompt.get("image_tokens")) or 0,
        audio_input=_count(prompt.get("audio_tokens")) or 0,
        audio_output=_count(completion.get("audio_tokens")) or 0,
    )


def _settle_totals(
    counts: _Counts, cached_beside: bool | None
) -> tuple[int | None, int | None, bool]:
    """Return prompt and completion with everything inside, and whether the total agrees."""
    prompt, completion, total = counts.prompt, counts.completion, counts.total
    cache = counts.cached + counts.cache_write
    if prompt is not None and cached_beside:
        prompt += cache
    if total is None:
        return prompt, completion, True
    if prompt is not None and completion is not None:
        on_top = cache if cached_beside is None else 0
        return _by_arithmetic(prompt, completion, total, on_top, counts.reasoning)
    if prompt is not None and total >= prompt:
        return prompt, total - prompt, True
    if completion is not None and total >= completion:
        return total - completion, completion, True
    return prompt, completion, prompt is None and completion is None


def _by_arithmetic(
    prompt: int, completion: int, total: int, cache: int, reasoning: int
) -> tuple[int, int, bool]:
    """Add cache and reasoning on top only where just that makes the total come out."""
    for more_prompt, more_completion in ((0, 0), (0, reasoning), (cache, 0), (cache, reasoning)):
        if prompt + more_prompt + completion + more_completion == total:
            return prompt + more_prompt, completion + more_completion, True
    return prompt, completion, False


def _reading(
    raw: JsonObject, counts: _Counts, prompt: int | None, completion: int | None, *, agrees: bool
) -> UsageReading:
    usage = _split(counts, prompt or 0, completion or 0)
    flags = []
    if not agrees or _was_clamped(counts, usage, prompt, completion):
        flags.append(USAGE_MISMATCH)
    if prompt is None:
        flags.append(PROMPT_ESTIMATED)
    if completion is None:
        flags.append(COMPLETION_ESTIMATED)
    source: Literal["vendor", "missing"] = "vendor"
    if prompt is None and completion is None:
        source = "missing"
    return UsageReading(prompt, completion, usage, source, tuple(flags), raw)


def _split(counts: _Counts, prompt: int, completion: int) -> Usage:
    """Share the two totals out among their classes; what does not fit is cut, never negative."""
    cached = min(counts.cached, prompt)
    cache_write = min(counts.cache_write, prompt - cached)
    image_input = min(counts.image_input, prompt - cached - cache_write)
    audio_input = min(counts.audio_input, prompt - cached - cache_write - image_input)
    reasoning = min(counts.reasoning, completion)
    audio_output = min(counts.audio_output, completion - reasoning)
    return Usage(
        input_tokens=prompt - cached - cache_write - image_input - audio_input,
        cached_input_tokens=cached,
        cache_write_tokens=cache_write,
        image_input_tokens=image_input,
        audio_input_tokens=audio_input,
        output_tokens=completion - reasoning - audio_output,
        reasoning_tokens=reasoning,
        audio_output_tokens=audio_output,
    )


def _was_clamped(counts: _Counts, usage: Usage, prompt: int | None, completion: int | None) -> bool:
    prompt_cut = prompt is not None and (
        usage.cached_input_tokens < counts.cached or usage.cache_write_tokens < counts.cache_write
    )
    return prompt_cut or (completion is not None and usage.reasoning_tokens < counts.reasoning)
