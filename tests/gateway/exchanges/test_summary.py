from hypothesis import example, given
from hypothesis import strategies as st

from gateway.exchanges.summary import summarise

FIXED_ANSWER = "vibetoken-benchmark-fixed-response" * 8


def a_completion(finish_reason: str = "stop", **message):
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}


def test_the_recorded_exchange_is_summarised_as_it_was() -> None:
    request = {"model": "m", "messages": [{"role": "user", "content": "benchmark"}]}
    assert summarise(request, a_completion(content=FIXED_ANSWER)) == {
        "system_prefix": None,
        "history_count": 1,
        "user_summary": {"text": "benchmark", "has_image": False, "has_tool_result": False},
        "assistant_summary": {
            "text": FIXED_ANSWER[:150],
            "tool_calls": [],
            "stop_reason": "stop",
        },
    }


def test_the_turn_is_what_came_after_the_assistant_spoke_last() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "old"}, picture]},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "look_up"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    summary = summarise({"messages": messages}, None)
    assert summary["system_prefix"] == "Be brief."
    assert summary["history_count"] == 4
    assert summary["user_summary"] == {"text": "a\nb", "has_image": False, "has_tool_result": True}
    assert summarise({"messages": messages[:2]}, None)["user_summary"] == {
        "text": "old",
        "has_image": True,
        "has_tool_result": False,
    }


def test_a_turn_of_tool_results_alone_shows_the_result() -> None:
    messages = [{"role": "assistant", "content": "x"}, {"role": "tool", "content": "42"}]
    assert summarise({"messages": messages}, None)["user_summary"] == {
        "text": "42",
        "has_image": False,
        "has_tool_result": True,
    }


def test_tool_calls_are_named_and_cut() -> None:
    call = {"id": "1", "function": {"name": "look_up", "arguments": "x" * 200}}
    answer = a_completion("tool_calls", content=None, tool_calls=[call])
    assert summarise({}, answer)["assistant_summary"] == {
        "text": "",
        "tool_calls": [{"name": "look_up", "arguments": "x" * 150}],
        "stop_reason": "tool_calls",
    }


def test_a_refusal_is_what_was_said() -> None:
    answer = a_completion(content=None, refusal="I can not.")
    assert summarise({}, answer)["assistant_summary"]["text"] == "I can not."


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "messages",
                    "role",
                    "content",
                    "choices",
                    "message",
                    "tool_calls",
                    "function",
                    "type",
                ]
            ),
            inner | st.sampled_from(["system", "user", "assistant", "tool", "tool_result"]),
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(anything, anything)
@example({"messages": [{"role": []}, {"role": {}}]}, None)
def test_any_json_has_a_summary(request, completion) -> None:
    assert set(summarise(request, completion)) == {
        "system_prefix",
        "history_count",
        "user_summary",
        "assistant_summary",
    }
