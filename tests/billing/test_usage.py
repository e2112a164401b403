"""What a vendor's usage is worth, dialect by dialect."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.usage import MAX_TOKENS, Usage, find_usage, latest_usage, read_usage

BOTH_ESTIMATED = ("prompt_estimated", "completion_estimated")


def read(raw, *, has_output=True, cached_beside=None):
    return read_usage(raw, has_output=has_output, cached_beside=cached_beside)


def counts(prompt, completion, total=None, **more):
    total = prompt + completion if total is None else total
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": total,
        **more,
    }


def test_plain_counts_are_used_and_kept():
    raw = counts(21, 7)
    reading = read(raw)
    assert (reading.prompt, reading.completion) == (21, 7)
    assert reading.usage == Usage(input_tokens=21, output_tokens=7)
    assert reading.source == "vendor"
    assert reading.flags == ()
    assert reading.is_complete
    assert reading.raw is raw


class TestCached:
    def test_cached_tokens_lie_inside_the_prompt(self):
        reading = read(counts(2006, 300, prompt_tokens_details={"cached_tokens": 1920}))
        assert reading.prompt == 2006
        assert reading.usage == Usage(input_tokens=86, cached_input_tokens=1920, output_tokens=300)

    @pytest.mark.parametrize(
        "said",
        [
            {"prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 4},
            {"prompt_tokens_details": {"cached_tokens": 4}, "prompt_cache_hit_tokens": 0},
            {"prompt_tokens_details": {"cached_tokens": 0, "cache_read_tokens": 4}},
            {"prompt_cache_hit_tokens": 0, "cached_tokens": 4},
        ],
    )
    def test_a_zero_under_one_name_does_not_hide_a_count_under_another(self, said):
        usage = read(counts(10, 5, **said)).usage
        assert usage == Usage(input_tokens=6, cached_input_tokens=4, output_tokens=5)

    def test_zeros_under_all_names_are_zero(self):
        said = {"prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 0}
        assert read(counts(10, 5, **said)).usage == Usage(input_tokens=10, output_tokens=5)

    def test_the_total_shows_that_cache_lies_beside(self):
        raw = counts(3, 550, 12857, cache_creation_input_tokens=12304, cache_read_input_tokens=0)
        reading = read(raw)
        assert reading.prompt == 12307
        assert reading.usage == Usage(input_tokens=3, cache_write_tokens=12304, output_tokens=550)
        assert reading.flags == ()

    def test_the_vendors_setting_puts_cache_beside_without_a_total(self):
        raw = {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 100}
        reading = read(raw, cached_beside=True)
        assert reading.prompt == 103
        assert reading.usage == Usage(input_tokens=3, cached_input_tokens=100, output_tokens=5)

    def test_the_vendors_setting_keeps_cache_inside_against_the_total(self):
        raw = counts(100, 5, 145, prompt_tokens_details={"cached_tokens": 40})
        reading = read(raw, cached_beside=False)
        assert reading.prompt == 100
        assert reading.usage.cached_input_tokens == 40
        assert reading.flags == ("usage_mismatch",)

    def test_a_hit_count_at_top_level_counts(self):
        raw = counts(36100, 1200, prompt_cache_hit_tokens=21600, prompt_cache_miss_tokens=14500)
        assert read(raw).usage == Usage(
            input_tokens=14500, cached_input_tokens=21600, output_tokens=1200
        )

    def test_a_hit_count_in_two_places_counts_once(self):
        raw = counts(
            100, 1, prompt_cache_hit_tokens=60, prompt_tokens_details={"cached_tokens": 60}
        )
        assert read(raw).usage.cached_input_tokens == 60

    def test_more_cached_than_prompt_is_cut_and_flagged(self):
        reading = read(counts(10, 5, prompt_tokens_details={"cached_tokens": 50}))
        assert reading.usage == Usage(cached_input_tokens=10, output_tokens=5)
        assert reading.flags == ("usage_mismatch",)


class TestReasoning:
    def test_reasoning_on_top_is_added_where_the_total_says_so(self):
        raw = counts(32, 9, 135, completion_tokens_details={"reasoning_tokens": 94})
        reading = read(raw)
        assert reading.completion == 103
        assert reading.usage == Usage(input_tokens=32, output_tokens=9, reasoning_tokens=94)

    def test_reasoning_inside_is_not_added(self):
        raw = counts(500, 500, completion_tokens_details={"reasoning_tokens": 200})
        reading = read(raw)
        assert reading.completion == 500
        assert reading.usage == Usage(input_tokens=500, output_tokens=300, reasoning_tokens=200)

    def test_without_a_total_reasoning_is_inside_and_cut(self):
        raw = {
            "prompt_tokens": 5,
            "completion_tokens": 9,
            "completion_tokens_details": {"reasoning_tokens": 94},
        }
        reading = read(raw)
        assert reading.completion == 9
        assert reading.usage.reasoning_tokens == 9
        assert reading.flags == ("usage_mismatch",)

    def test_cache_beside_and_reasoning_on_top_together(self):
        raw = counts(
            3,
            9,
            3 + 100 + 9 + 40,
            cache_read_input_tokens=100,
            completion_tokens_details={"reasoning_tokens": 40},
        )
        assert read(raw).usage == Usage(
            input_tokens=3, cached_input_tokens=100, output_tokens=9, reasoning_tokens=40
        )


class TestMissing:
    @pytest.mark.parametrize("raw", [None, [], "", 5, True, {}, {"total_tokens": 5}])
    def test_no_usage_is_missing(self, raw):
        reading = read(raw)
        assert (reading.prompt, reading.completion) == (None, None)
        assert reading.source == "missing"
        assert reading.flags == BOTH_ESTIMATED
        assert reading.raw is raw

    def test_all_zeros_beside_output_are_missing(self):
        assert read(counts(0, 0)).source == "missing"

    def test_all_zeros_without_output_are_true(self):
        reading = read(counts(0, 0), has_output=False)
        assert (reading.prompt, reading.completion, reading.source) == (0, 0, "vendor")

    def test_a_zero_completion_beside_text_is_estimated_alone(self):
        reading = read(counts(12, 0))
        assert (reading.prompt, reading.completion) == (12, None)
        assert reading.flags == ("completion_estimated",)
        assert reading.source == "vendor"

    def test_a_zero_prompt_beside_a_completion_is_estimated_alone(self):
        reading = read(counts(0, 12))
        assert (reading.prompt, reading.completion) == (None, 12)
        assert reading.flags == ("prompt_estimated",)

    def test_a_zero_completion_of_an_empty_answer_is_true(self):
        reading = read(counts(18, 0), has_output=False)
        assert (reading.prompt, reading.completion) == (18, 0)
        assert reading.flags == ()

    def test_a_completion_left_out_of_an_empty_answer_is_zero(self):
        reading = read({"prompt_tokens": 18}, has_output=False)
        assert (reading.prompt, reading.completion) == (18, 0)

    def test_only_a_completion_keeps_it(self):
        reading = read({"completion_tokens": 25})
        assert (reading.prompt, reading.completion) == (None, 25)
        assert reading.flags == ("prompt_estimated",)

    def test_a_completion_is_made_up_from_the_total(self):
        reading = read({"prompt_tokens": 9, "total_tokens": 20})
        assert (reading.prompt, reading.completion) == (9, 11)
        assert reading.flags == ()

    def test_a_prompt_is_made_up_from_the_total(self):
        reading = read({"completion_tokens": 9, "total_tokens": 20})
        assert (reading.prompt, reading.completion) == (11, 9)

    def test_estimates_fill_only_what_is_missing(self):
        reading = read(counts(12, 0, prompt_tokens_details={"cached_tokens": 4}))
        filled = reading.with_estimates(prompt=99, completion=30)
        assert filled == Usage(input_tokens=8, cached_input_tokens=4, output_tokens=30)
        assert read(None).with_estimates(prompt=5, completion=6) == Usage(
            input_tokens=5, output_tokens=6
        )


class TestNonsense:
    def test_numeric_strings_are_numbers(self):
        raw = {"prompt_tokens": "12", "completion_tokens": "28", "total_tokens": "40"}
        reading = read(raw)
        assert (reading.prompt, reading.completion, reading.flags) == (12, 28, ())

    @pytest.mark.parametrize(
        "bad",
        [-100, True, 1.5, "x", "", "-1", "1e3", "１２", [], {}, MAX_TOKENS + 1, "9" * 17, 1e300],
    )
    def test_what_is_no_count_is_missing(self, bad):
        reading = read({"prompt_tokens": bad, "completion_tokens": 50})
        assert (reading.prompt, reading.completion) == (None, 50)

    def test_a_negative_prompt_with_a_negative_total(self):
        reading = read(counts(-100, 50))
        assert (reading.prompt, reading.completion) == (None, 50)
        assert reading.source == "vendor"

    def test_a_whole_float_is_a_count(self):
        assert read(counts(12.0, 3.0)).prompt == 12

    def test_counts_above_32_bits_are_fine(self):
        assert read(counts(3_000_000_000, 5)).prompt == 3_000_000_000

    def test_a_total_below_its_parts_loses_and_is_flagged(self):
        reading = read(counts(375, 60, 200))
        assert (reading.prompt, reading.completion) == (375, 60)
        assert reading.flags == ("usage_mismatch",)

    def test_a_total_below_the_prompt_gives_no_negative_completion(self):
        reading = read({"prompt_tokens": 375, "total_tokens": 200})
        assert (reading.prompt, reading.completion) == (375, None)
        assert reading.flags == ("usage_mismatch", "completion_estimated")

    def test_null_and_unknown_details_are_nothing(self):
        raw = counts(
            2327,
            204,
            prompt_tokens_details=None,
            completion_tokens_details={"reasoning_tokens": None, "x_new": 5},
        )
        reading = read(raw)
        assert reading.usage == Usage(input_tokens=2327, output_tokens=204)
        assert reading.flags == ()

    def test_audio_is_counted_once(self):
        raw = counts(
            300,
            150,
            prompt_tokens_details={"audio_tokens": 200, "cached_tokens": 0},
            completion_tokens_details={"audio_tokens": 120},
        )
        usage = read(raw).usage
        assert usage == Usage(
            input_tokens=100, audio_input_tokens=200, output_tokens=30, audio_output_tokens=120
        )
        assert (usage.prompt_tokens, usage.completion_tokens) == (300, 150)
        assert usage.total_tokens == 450


DIALECTS = {
    "openai": counts(10, 5, prompt_tokens_details={"cached_tokens": 4}),
    "responses": {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_tokens_details": {"cached_tokens": 4},
    },
    "anthropic": {"input_tokens": 6, "output_tokens": 5, "cache_read_input_tokens": 4},
    "translated": counts(10, 5, cache_read_input_tokens=4, cache_creation_input_tokens=0),
    "deepseek": counts(10, 5, prompt_cache_hit_tokens=4, prompt_cache_miss_tokens=6),
    "moonshot": counts(10, 5, cached_tokens=4),
    "gemini": {
        "promptTokenCount": 10,
        "candidatesTokenCount": 5,
        "totalTokenCount": 15,
        "cachedContentTokenCount": 4,
    },
    "bedrock": {
        "inputTokens": 6,
        "outputTokens": 5,
        "totalTokens": 15,
        "cacheReadInputTokens": 4,
    },
    "langchain": {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_token_details": {"cache_read": 4},
    },
    "javascript": {"promptTokens": 10, "completionTokens": 5, "cached_tokens": 4},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_count_is_found_under_every_name(dialect):
    reading = read(DIALECTS[dialect])
    assert reading.usage == Usage(input_tokens=6, cached_input_tokens=4, output_tokens=5)
    assert reading.flags == ()


def test_counts_of_a_dialect_without_cache():
    usage = read({"prompt_eval_count": 10, "eval_count": 5}).usage
    assert usage == Usage(input_tokens=10, output_tokens=5)


def test_thoughts_beside_candidates_are_on_top_by_the_total():
    raw = {
        "promptTokenCount": 10,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
        "totalTokenCount": 22,
    }
    assert read(raw).usage == Usage(input_tokens=10, output_tokens=5, reasoning_tokens=7)


class TestBesideByName:
    RAW = {"input_tokens": 3, "output_tokens": 5, "cache_creation_input_tokens": 12}

    def test_anthropics_cache_lies_beside_the_input(self):
        assert read(self.RAW).usage.prompt_tokens == 15

    def test_the_vendors_setting_has_the_last_word(self):
        reading = read(self.RAW, cached_beside=False)
        assert (reading.usage.prompt_tokens, reading.flags) == (3, ("usage_mismatch",))

    def test_beside_a_prompt_count_the_name_says_nothing(self):
        raw = {"prompt_tokens": 3, "completion_tokens": 5, "cache_read_input_tokens": 2}
        assert read(raw).usage == Usage(input_tokens=1, cached_input_tokens=2, output_tokens=5)


def test_the_total_says_what_a_zero_should_be():
    assert read(counts(12, 0, total=20)).usage == Usage(input_tokens=12, output_tokens=8)
    assert read(counts(0, 8, total=20)).usage == Usage(input_tokens=12, output_tokens=8)


class TestLatest:
    def test_a_whole_usage_replaces_the_one_before(self):
        newer = counts(9, 7)
        assert latest_usage(counts(9, 2, cached_tokens=4), newer) is newer
        assert latest_usage(None, newer) is newer

    def test_halves_that_come_apart_are_put_together(self):
        first = {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 4}
        both = latest_usage(first, {"output_tokens": 7})
        assert both == {"input_tokens": 9, "output_tokens": 7, "cache_read_input_tokens": 4}
        assert first["output_tokens"] == 1

    def test_a_total_stays_with_its_own_counts(self):
        first = {"prompt_tokens": 11, "total_tokens": 11}
        both = latest_usage(first, {"completion_tokens": 6})
        assert both == {"prompt_tokens": 11, "completion_tokens": 6}

    @pytest.mark.parametrize(
        "newer", [counts(0, 0), {"prompt_tokens": None}, {"completion_tokens": 0}]
    )
    def test_zeros_and_nulls_replace_nothing(self, newer):
        both = latest_usage(counts(9, 2), newer)
        assert (both["prompt_tokens"], both["completion_tokens"]) == (9, 2)


class TestFind:
    def test_usage_is_found_where_it_is(self):
        usage = counts(1, 2)
        assert find_usage({"usage": usage}) is usage
        assert find_usage({"usage": None, "choices": [{"usage": usage}]}) is usage
        assert find_usage({"choices": [{"usage": usage}, {}]}) is usage
        assert find_usage({"choices": [{"delta": {"usage": usage}}]}) is usage
        assert find_usage({"choices": [{"message": {"usage": usage}}]}) is usage
        assert find_usage({"x_groq": {"usage": usage}}) is usage
        assert find_usage({"type": "message_start", "message": {"usage": usage}}) is usage
        assert find_usage({"usageMetadata": usage}) is usage

    @pytest.mark.parametrize(
        "message",
        [
            {},
            {"usage": {}},
            {"usage": 5},
            {"choices": None},
            {"choices": [None, {"usage": []}]},
            {"x_groq": 1},
        ],
    )
    def test_no_usage_is_none(self, message):
        assert find_usage(message) is None


COUNT = st.one_of(
    st.none(),
    st.integers(-5, 60),
    st.integers(),
    st.sampled_from(["12", "-1", "x", 2.0, 2.5, True, [], {}, float("inf"), float("nan")]),
)
DETAILS = st.one_of(
    COUNT,
    st.dictionaries(st.sampled_from(["cached_tokens", "reasoning_tokens", "audio_tokens"]), COUNT),
)
USAGE = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": COUNT,
        "completion_tokens": COUNT,
        "total_tokens": COUNT,
        "input_tokens": COUNT,
        "prompt_cache_hit_tokens": COUNT,
        "cache_creation_input_tokens": COUNT,
        "totalTokenCount": COUNT,
        "thoughtsTokenCount": COUNT,
        "prompt_tokens_details": DETAILS,
        "completion_tokens_details": DETAILS,
    },
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    raw=USAGE | ANY_JSON,
    has_output=st.booleans(),
    cached_beside=st.sampled_from([None, True, False]),
)
def test_any_value_gives_disjoint_counts_that_add_up(raw, has_output, cached_beside):
    reading = read(raw, has_output=has_output, cached_beside=cached_beside)
    usage = reading.usage
    parts = [getattr(usage, name) for name in Usage.__slots__]
    assert all(type(part) is int and part >= 0 for part in parts)
    assert sum(parts) == usage.total_tokens
    assert usage.prompt_tokens == (reading.prompt or 0)
    assert usage.completion_tokens == (reading.completion or 0)
    assert ("prompt_estimated" in reading.flags) == (reading.prompt is None)
    assert ("completion_estimated" in reading.flags) == (reading.completion is None)
    missing = reading.prompt is None and reading.completion is None
    assert (reading.source == "missing") == missing
    if has_output:
        assert reading.completion != 0
    assert json.dumps(reading.flags)


@given(held=st.none() | USAGE, newer=USAGE)
def test_any_two_usages_are_one(held, newer):
    assert isinstance(latest_usage(held, newer), dict)
