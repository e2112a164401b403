import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.relay.assemble import fold, has_output, split
from gateway.relay.json_text import encode
from tests.gateway.relay.playbook import (
    ROLE,
    STOP,
    chunk,
    completion,
    counts,
    delta,
    usage_chunk,
)


def message(*chunks: dict, index: int = 0) -> dict:
    return fold(chunks)["choices"][index]["message"]


class TestFold:
    def test_a_stream_becomes_one_completion(self):
        chunks = [ROLE, chunk("Hel"), chunk("lo"), STOP, usage_chunk(9, 2)]
        assert fold(chunks) == completion(usage=counts(9, 2))

    def test_nothing_is_an_empty_completion(self):
        assert fold([]) == {"object": "chat.completion", "choices": []}
        assert fold([None, 5, "x"]) == fold([])

    def test_tool_calls_are_put_together_by_index(self):
        def call(index, **fields):
            return {"index": index, **fields}

        chunks = [
            delta({"tool_calls": [call(0, id="c0", type="function", function={"name": "f"})]}),
            delta({"tool_calls": [call(1, id="c1", function={"name": "g", "arguments": ""})]}),
            delta({"tool_calls": [call(0, id="", function={"name": "", "arguments": '{"a"'})]}),
            delta({"tool_calls": [call(1, function={"arguments": "{}"})]}),
            delta({"tool_calls": [call(0, function={"name": "f", "arguments": ":1}"})]}),
        ]
        assert message(*chunks)["tool_calls"] == [
            {"id": "c0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "c1", "function": {"name": "g", "arguments": "{}"}},
        ]

    def test_tool_calls_without_index_go_by_their_id(self):
        chunks = [
            delta({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "1"}}]}),
            delta({"tool_calls": [{"function": {"arguments": "2"}}]}),
            delta({"tool_calls": [{"id": "b", "function": {"name": "f", "arguments": "3"}}]}),
        ]
        calls = message(*chunks)["tool_calls"]
        assert [call["function"]["arguments"] for call in calls] == ["12", "3"]

    def test_calls_that_share_an_index_go_by_id_and_name(self):
        def call(at, name=None, **fields):
            function = {"arguments": "1", **({"name": name} if name else {})}
            return delta({"tool_calls": [{"index": 0, "id": at, "function": function, **fields}]})

        apart = message(call("a", "f"), call("b", "g"), call("b"), call(None))["tool_calls"]
        assert [one["function"]["arguments"] for one in apart] == ["1", "111"]
        pieces = message(call("a", "f"), call("b"), call("c"))["tool_calls"]
        assert [one["function"] for one in pieces] == [{"name": "f", "arguments": "111"}]

    def test_an_id_may_be_anything(self):
        odd = delta({"tool_calls": [{"id": [{}], "function": {"name": {}, "arguments": "1"}}]})
        assert len(message(odd, odd)["tool_calls"]) == 1

    def test_thinking_refusal_and_legacy_calls_are_joined(self):
        chunks = [
            delta({"reasoning_content": "th", "reasoning": "a", "refusal": "n"}),
            delta({"reasoning_content": "ink", "reasoning": "b", "refusal": "o"}),
            delta({"function_call": {"name": "f", "arguments": "{"}}),
            delta({"function_call": {"arguments": "}"}}),
        ]
        assert message(*chunks) == {
            "role": "assistant",
            "content": None,
            "reasoning_content": "think",
            "reasoning": "ab",
            "refusal": "no",
            "function_call": {"name": "f", "arguments": "{}"},
        }

    def test_audio_annotations_and_reasoning_details_are_put_together(self):
        chunks = [
            delta({"audio": {"id": "a1", "data": "AA", "transcript": "he"}}),
            delta({"audio": {"data": "BB", "transcript": "y", "expires_at": 5}}),
            delta({"annotations": [{"type": "url_citation"}]}),
            delta({"annotations": [{"type": "file_citation"}]}),
            delta({"reasoning_details": [{"index": 0, "text": "x", "format": "f"}]}),
            delta({"reasoning_details": [{"index": 0, "text": "y", "format": "f"}]}),
        ]
        folded = message(*chunks)
        assert folded["audio"] == {
            "id": "a1",
            "data": "AABB",
            "transcript": "hey",
            "expires_at": 5,
        }
        assert [a["type"] for a in folded["annotations"]] == ["url_citation", "file_citation"]
        assert folded["reasoning_details"] == [{"index": 0, "text": "xy", "format": "f"}]

    def test_logprobs_are_strung_together(self):
        chunks = [
            delta({"content": "a"}, logprobs={"content": [{"token": "a"}], "refusal": None}),
            delta({"content": "b"}, logprobs=None),
            delta({"content": "c"}, logprobs={"content": [{"token": "c"}], "refusal": None}),
        ]
        logprobs = fold(chunks)["choices"][0]["logprobs"]
        assert logprobs == {"content": [{"token": "a"}, {"token": "c"}], "refusal": None}

    def test_the_last_finish_reason_and_the_last_of_other_values_win(self):
        chunks = [
            chunk("a", finish="length"),
            chunk(finish="", x_new=1),
            chunk(finish="stop", x_new=2, system_fingerprint="fp"),
            chunk(x_new=None),
        ]
        folded = fold(chunks)
        assert folded["choices"][0]["finish_reason"] == "stop"
        assert (folded["x_new"], folded["system_fingerprint"]) == (2, "fp")

    def test_unknown_fields_of_a_delta_and_a_choice_are_kept(self):
        folded = fold([delta({"x_delta": {"a": 1}}, x_choice=[1]), STOP])
        assert folded["choices"][0]["message"]["x_delta"] == {"a": 1}
        assert folded["choices"][0]["x_choice"] == [1]

    def test_choices_come_in_the_order_of_their_index(self):
        chunks = [
            chunk(choices=[{"index": 1, "delta": {"content": "B"}}]),
            chunk(choices=[{"index": 0, "delta": {"content": "A"}}]),
        ]
        choices = fold(chunks)["choices"]
        assert [(c["index"], c["message"]["content"]) for c in choices] == [(0, "A"), (1, "B")]

    def test_a_whole_message_in_a_chunk_is_a_delta(self):
        assert fold([completion("Hello")]) == completion("Hello")

    @pytest.mark.parametrize(
        "choices",
        [None, {}, [None], [{"index": "x", "delta": []}], [{"delta": {"tool_calls": [1, None]}}]],
    )
    def test_malformed_chunks_do_no_harm(self, choices):
        assert fold([chunk(choices=choices)])["object"] == "chat.completion"

    def test_deep_deltas_do_no_harm(self):
        deep: dict = {}
        for _ in range(900):
            deep = {"x": deep}
        assert "x" in message(delta({"x": deep}), delta({"x": deep}))

    def test_what_was_added_is_not_changed(self):
        first = delta({"tool_calls": [{"index": 0, "function": {"arguments": "a"}}]})
        before = encode(first)
        fold([first, delta({"tool_calls": [{"index": 0, "function": {"arguments": "b"}}]})])
        assert encode(first) == before


class TestSplit:
    def test_thinking_comes_before_the_text_and_calls_get_an_index(self):
        sent = completion(
            choices=[
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "Yes.",
                        "reasoning_content": "hm",
                        "tool_calls": [{"id": "a"}, {"id": "b"}],
                    },
                    "logprobs": {"content": []},
                    "finish_reason": "tool_calls",
                    "x_choice": 1,
                }
            ],
            x_extra={"k": 1},
        )
        pieces = [value["choices"][0] for value in split(sent)]
        assert [piece["delta"] for piece in pieces] == [
            {"role": "assistant", "content": ""},
            {"reasoning_content": "hm"},
            {"content": "Yes.", "tool_calls": [{"index": 0, "id": "a"}, {"index": 1, "id": "b"}]},
            {},
        ]
        assert [piece["finish_reason"] for piece in pieces] == [None, None, None, "tool_calls"]
        assert pieces[2]["logprobs"] == {"content": []}
        assert pieces[3]["x_choice"] == 1
        assert [value.get("x_extra") for value in split(sent)] == [{"k": 1}, None, None, None]

    def test_usage_comes_in_a_chunk_of_its_own(self):
        *_, last = split(completion(usage=counts(1, 2)), include_usage=True)
        assert (last["choices"], last["usage"]) == ([], counts(1, 2))
        assert all("usage" not in value for value in split(completion(usage=counts(1, 2))))

    def test_an_empty_answer_is_still_a_stream(self):
        deltas = [value["choices"][0]["delta"] for value in split(completion(None))]
        assert deltas == [{"role": "assistant", "content": ""}, {}]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"delta": {"content": "x"}}, True),
        ({"message": {"tool_calls": [{}]}}, True),
        ({"text": "x"}, True),
        ({"delta": {"role": "assistant", "content": ""}}, False),
        ({"delta": None}, False),
        ({}, False),
    ],
)
def test_output_is_what_a_model_produced(choice, expected):
    assert has_output(choice) is expected


TEXT = st.text(min_size=1, max_size=8)
CALL = st.fixed_dictionaries(
    {
        "id": TEXT,
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": TEXT, "arguments": TEXT}),
    }
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": TEXT},
    optional={
        "reasoning_content": TEXT,
        "refusal": TEXT,
        "tool_calls": st.lists(CALL, min_size=1, max_size=3),
        "annotations": st.lists(st.fixed_dictionaries({"type": TEXT}), min_size=1, max_size=2),
        "audio": st.fixed_dictionaries({"id": TEXT, "data": TEXT, "transcript": TEXT}),
        "x_new": st.integers(),
    },
)


@given(messages=st.lists(MESSAGE, min_size=1, max_size=3), extra=st.integers())
@settings(max_examples=60, deadline=None)
def test_what_was_split_folds_back(messages, extra):
    choices = [
        {"index": at, "message": held, "finish_reason": "stop"} for at, held in enumerate(messages)
    ]
    sent = completion(choices=choices, x_extra=extra, usage=counts(1, 2))
    assert fold(split(sent, include_usage=True)) == sent
