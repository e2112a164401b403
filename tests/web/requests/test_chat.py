import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.exchanges.legs import Leg, LegsView
from gateway.web.requests.chat import TEXT_CHARS, Chat, Turn, chat_of, summary_chat

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "text", "type", "tool_calls", "function", "name", "arguments"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)


def asked(*messages: object) -> Chat:
    return chat_of(Leg(1, body={"messages": list(messages)}))


def test_a_conversation_is_what_stands_before_and_what_was_asked_last():
    chat = asked(
        {"role": "system", "content": "Answer with a patch."},
        {"role": "user", "content": "Is it red?"},
        {"role": "tool", "tool_call_id": "c1", "content": "1 failed"},
        {"role": "user", "content": "Fix the rounding."},
    )
    assert chat.system == (Turn("system", "Answer with a patch."),)
    assert chat.last == (Turn("user", "Fix the rounding."),)
    assert chat.history_words == "2 messages, 1 tool result"


def test_parts_are_put_together_and_what_is_no_text_is_named():
    chat = asked(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is"},
                {"type": "image_url", "image_url": {"url": "https://x.example"}},
                {"type": "text", "text": "this?"},
            ],
        }
    )
    assert chat.last == (Turn("user", "What is\nthis?", ("a part of type image_url",)),)


def test_calls_of_tools_are_shown_with_their_arguments():
    call = {"function": {"name": "run", "arguments": '{"test": "gripper"}'}}
    chat = asked({"role": "assistant", "content": None, "tool_calls": [call]})
    assert chat.last == (Turn("assistant", "", ('calls run({"test": "gripper"})',)),)


def test_an_answer_says_how_it_ended_and_what_it_thought():
    message = {"role": "assistant", "content": "Done.", "reasoning_content": "Hm."}
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    assert chat_of(Leg(4, body=body)).last == (
        Turn("assistant", "Done.", ("reasoning: Hm.", "ended by stop")),
    )


def test_a_refusal_is_text():
    body = {"choices": [{"message": {"role": "assistant", "refusal": "I will not."}}]}
    assert chat_of(Leg(4, body=body)).last == (Turn("assistant", "I will not."),)


def test_a_long_text_is_cut():
    (turn,) = asked({"role": "user", "content": "x" * (TEXT_CHARS + 1)}).last
    assert turn.text == "x" * TEXT_CHARS + "…"


@pytest.mark.parametrize("body", [None, [], "text", {"error": {"message": "no"}}])
def test_what_is_no_chat_is_none(body):
    assert chat_of(Leg(4, body=body)) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(JSON, max_size=3))
def test_any_messages_can_be_shown(messages):
    chat = chat_of(Leg(1, body={"messages": messages}))
    assert all(isinstance(turn.text, str) for turn in chat.system + chat.history + chat.last)


@settings(max_examples=50, deadline=None)
@given(st.lists(JSON.map(lambda value: {"message": value}) | JSON, max_size=3))
def test_any_choices_can_be_shown(choices):
    assert json.dumps([turn.text for turn in chat_of(Leg(4, body={"choices": choices})).last])


def test_a_summary_stands_for_what_is_not_stored():
    summary = {
        "system_prefix": "Be brief.",
        "history_count": 7,
        "user_summary": {"text": "Fix it.", "has_image": True, "has_tool_result": False},
        "assistant_summary": {"text": "Fixed.", "tool_calls": [{"name": "run"}]},
    }
    view = LegsView(Leg(1), (), Leg(4), policy="summaries", summary=summary)
    assert summary_chat(view, 1) == Chat(
        (Turn("system", "Be brief."),),
        (),
        (Turn("user", "Fix it.", ("with an image", "7 messages in all")),),
    )
    assert summary_chat(view, 4) == Chat((), (), (Turn("assistant", "Fixed.", ("calls run",)),))
    assert summary_chat(LegsView(Leg(1), (), Leg(4)), 1) is None
