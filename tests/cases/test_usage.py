"""Group b: what a vendor says it used, in every dialect, and what is done where it does not say."""

import dataclasses

import pytest

from tests.cases.runner import Ask, Case, Gets, Played, estimated, usage_of, vendors
from tests.cases.wire import (
    ROLE,
    STOP,
    completion,
    counts,
    delta,
    stream,
    text,
    usage,
    whole,
)

STREAM = Ask(fields={"stream": True})
WITH_USAGE = Ask(fields={"stream": True, "stream_options": {"include_usage": True}})
PANGRAM = "The quick brown fox jumps over the lazy dog. "
TEN_WORDS = "One two three four five six seven eight nine ten."
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
PICTURE = "data:image/png;base64," + "A" * 1_900_000
WORDS = [f"word{number} " for number in range(60)]


def said(tokens: object, content: str = "Hello"):
    return whole(completion(content, tokens=tokens))


def call_of(arguments: str, **fields: str) -> dict:
    function = {"arguments": arguments, **({"name": fields.pop("name")} if fields else {})}
    return delta({"tool_calls": [{"index": 0, **fields, "function": function}]})


def holds_no_more_than_a_picture_costs(played: Played) -> None:
    assert 0 < played.exchange.hold_nanos < 50_000_000


def texts_stay_with_their_choice(played: Played) -> None:
    assert (played.got.text(0), played.got.text(1)) == ("A1", "B1B2")


CASES = [
    # --- what lies inside of what --------------------------------------------------------------
    Case(
        id="B01",
        rule="cached tokens lie inside the prompt",
        sends=said(counts(2006, 300, prompt_tokens_details={"cached_tokens": 1920})),
        pays=vendors(2006, 300, "0.001478", cached=1920),
    ),
    Case(
        id="B03",
        rule="cache beside the prompt is found by the total, and none of it is lost",
        sends=said(
            {
                "prompt_tokens": 3,
                "completion_tokens": 550,
                "total_tokens": 12_857,
                "cache_creation_input_tokens": 12_304,
                "cache_read_input_tokens": 0,
            }
        ),
        pays=vendors(12_307, 550, "0.014507"),
    ),
    Case(
        id="B05",
        rule="cache hits may stand beside the counts, by another name",
        sends=said(
            counts(36_100, 1_200, prompt_cache_hit_tokens=21_600, prompt_cache_miss_tokens=14_500)
        ),
        pays=vendors(36_100, 1_200, "0.02146", cached=21_600),
    ),
    Case(
        id="B06",
        rule="reasoning is on top where only that makes up the total",
        sends=said(
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            }
        ),
        pays=vendors(32, 103, "0.000444"),
    ),
    Case(
        id="B07",
        rule="reasoning is inside the completion otherwise",
        sends=said(counts(500, 500, completion_tokens_details={"reasoning_tokens": 200})),
        pays=vendors(500, 500, "0.0025"),
    ),
    Case(
        id="B08b",
        rule="a total below its parts loses, and is flagged",
        sends=said({"prompt_tokens": 375, "completion_tokens": 60, "total_tokens": 200}),
        pays=vendors(375, 60, "0.000615", flags=("usage_mismatch",)),
    ),
    Case(
        id="B25",
        rule="audio without a price of its own costs what text costs",
        sends=said(
            counts(
                300,
                150,
                prompt_tokens_details={"audio_tokens": 200, "cached_tokens": 0},
                completion_tokens_details={"audio_tokens": 120, "reasoning_tokens": 0},
            )
        ),
        pays=vendors(300, 150, "0.0009"),
    ),
    Case(
        id="B25-priced",
        rule="audio with a price of its own costs that",
        sends=said(
            counts(
                300,
                150,
                prompt_tokens_details={"audio_tokens": 200, "cached_tokens": 0},
                completion_tokens_details={"audio_tokens": 120, "reasoning_tokens": 0},
            )
        ),
        pays=vendors(300, 150, "0.00462"),
        prices={"input": "1", "output": "4", "audio_input": "10", "audio_output": "20"},
    ),
    # --- zeros and gaps ------------------------------------------------------------------------
    Case(
        id="B09",
        rule="nothing but zeros beside text is no usage",
        sends=said(counts(0, 0), PANGRAM * 4),
        pays=estimated((30, 50)),
    ),
    Case(
        id="B10b",
        rule="a zero beside text is estimated alone",
        sends=said(counts(12, 0), TEN_WORDS),
        pays=vendors(12, (8, 16), None, flags=("completion_estimated",)),
    ),
    Case(
        id="B10c",
        rule="a zero without text is a zero",
        sends=said(counts(18, 0), ""),
        pays=vendors(18, 0, "0.000018"),
    ),
    Case(
        id="B11",
        rule="a call of a tool is output, and tools are prompt",
        sends=stream(
            ROLE,
            call_of("", id="call_1", type="function", name="get_weather"),
            call_of('{"city":"Amsterdam","unit":"celsius",'),
            call_of('"days":5,"lang":"en"}'),
            delta({}, "tool_calls"),
            usage(0, 0),
        ),
        asks=Ask(fields={"stream": True, "tools": [WEATHER]}),
        gets=Gets(done=True, finish="tool_calls", has=("get_weather",)),
        pays=estimated((12, 40), (10, 70)),
    ),
    Case(
        id="B14",
        rule="thinking is output",
        sends=stream(
            delta({"role": "assistant", "content": None, "reasoning_content": "think " * 20}),
            delta({"reasoning_content": "more " * 20}),
            text("Yes."),
            STOP,
        ),
        asks=STREAM,
        gets=Gets(text="Yes.", done=True, has=("reasoning_content",)),
        pays=estimated((35, 70)),
    ),
    Case(
        id="B19",
        rule="a prompt that was not counted is estimated alone",
        sends=said({"completion_tokens": 25}),
        pays=vendors((3, 20), 25, None, flags=("prompt_estimated",)),
    ),
    Case(
        id="B20",
        rule="the total gives the count that is missing",
        sends=said({"prompt_tokens": 9, "total_tokens": 20}),
        pays=vendors(9, 11, "0.000053"),
    ),
    Case(
        id="B21",
        rule="usage that is null is no usage",
        sends=whole(
            completion("one two three four five six seven eight nine ten eleven twelve", usage=None)
        ),
        pays=estimated((10, 24)),
    ),
    Case(
        id="B29",
        rule="without usage a stream is estimated, whatever the client asked",
        sends=stream(ROLE, text(TEN_WORDS), STOP),
        asks=WITH_USAGE,
        gets=Gets(text=TEN_WORDS, done=True, usage_chunks=0),
        pays=estimated((8, 16)),
    ),
    # --- values that are no counts ---------------------------------------------------------------
    Case(
        id="B15",
        rule="digits in a text are a count",
        sends=said({"prompt_tokens": "12", "completion_tokens": "28", "total_tokens": "40"}),
        pays=vendors(12, 28, "0.000124"),
    ),
    Case(
        id="B17",
        rule="a negative count is no count",
        sends=said({"prompt_tokens": -100, "completion_tokens": 50, "total_tokens": -50}),
        pays=vendors((3, 20), 50, None, flags=("prompt_estimated",)),
    ),
    Case(
        id="B30",
        rule="details that are null or unknown are nothing",
        sends=stream(
            ROLE,
            text("Hello"),
            STOP,
            usage(
                2327,
                204,
                prompt_tokens_details=None,
                completion_tokens_details={"reasoning_tokens": None, "x_new": 5},
            ),
        ),
        asks=WITH_USAGE,
        gets=Gets(text="Hello", done=True, usage_chunks=1),
        pays=vendors(2327, 204, "0.003143"),
    ),
    # --- what is counted -------------------------------------------------------------------------
    Case(
        id="B23",
        rule="a picture is not counted as the text that carries it",
        sends=said(None, "A cat."),
        asks=Ask(
            fields={
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "What is it?"},
                            {"type": "image_url", "image_url": {"url": PICTURE}},
                        ],
                    }
                ]
            }
        ),
        pays=estimated((2, 6), (10, 4_000)),
        balance="1.00",
        also=holds_no_more_than_a_picture_costs,
    ),
    Case(
        id="B27",
        rule="several choices are one answer and one charge",
        sends=stream(
            delta({"role": "assistant", "content": "A1"}),
            delta({"role": "assistant", "content": "B1"}, index=1),
            STOP,
            delta({"content": "B2"}, index=1),
            delta({}, "stop", index=1),
            usage(24, 58),
        ),
        asks=Ask(fields={"stream": True, "n": 2}),
        gets=Gets(done=True),
        pays=vendors(24, 58, "0.000256"),
        also=texts_stay_with_their_choice,
    ),
    Case(
        id="B28",
        rule="a stream is estimated as one body is",
        sends=stream(ROLE, *map(text, WORDS), STOP),
        asks=STREAM,
        gets=Gets(text="".join(WORDS), done=True),
        pays=estimated((60, 180)),
    ),
    Case(
        id="B28-body",
        rule="a body is estimated as its stream is",
        sends=said(None, "".join(WORDS)),
        pays=estimated((60, 180)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_usage(stage, case: Case) -> None:
    stage.play(case)


def test_a_stream_and_a_body_of_the_same_words_cost_the_same(stage) -> None:
    twins = [case for case in CASES if case.id.startswith("B28")]
    first, second = (usage_of(stage.play(case).exchange.charge) for case in twins)
    assert dataclasses.astuple(first) == dataclasses.astuple(second)
