import json

import pytest

from gateway.exchanges.legs import AttemptLegs, Leg, LegsView
from gateway.web.requests.tabs import tabs_of

HEADERS = (("Host", "api.example"), ("Authorization", "Bearer ••••"))
ASKED = {"model": "deepseek-v4", "messages": [{"role": "user", "content": "Hi"}]}
SENT = {**ASKED, "model": "deepseek-v4-chat"}
SAID = {"id": "v-1", "choices": [{"message": {"role": "assistant", "content": "Hello"}}]}


def attempt(number: int, status: int | None = 200) -> AttemptLegs:
    return AttemptLegs(
        number,
        "north",
        "deepseek-v4-chat",
        Leg(2, method="POST", url="https://north.example", headers=HEADERS, at_ms=4.3, body=SENT),
        Leg(3, status=status, headers=HEADERS, at_ms=20.5, body=SAID),
    )


def legs(*attempts: AttemptLegs) -> LegsView:
    return LegsView(
        Leg(1, method="POST", url="/v1", headers=HEADERS, at_ms=0.0, body=ASKED),
        attempts,
        Leg(4, status=200, headers=HEADERS, at_ms=21.0, body={**SAID, "id": "chatcmpl-1"}),
        policy="content",
    )


def test_without_a_word_it_is_the_clients_request_as_a_chat():
    tabs = tabs_of(legs(attempt(1)), {})
    assert (tabs.number, tabs.view, tabs.diff) == (1, "chat", None)
    assert tabs.chat.last[0].text == "Hi"
    assert [tab.is_current for tab in tabs.legs] == [True, False, False, False]
    assert [tab.fact for tab in tabs.legs] == ["0.0 ms", "4.3 ms", "20.5 ms", "21.0 ms"]


@pytest.mark.parametrize(("leg", "ends"), [("2", (1, 2)), ("4", (3, 4))])
def test_what_farthing_changed_stands_where_it_ends(leg, ends):
    diff = tabs_of(legs(attempt(1)), {"leg": leg}).diff
    assert (diff.start, diff.end) == ends


def test_the_attempt_that_answered_is_shown_unless_another_is_asked_for():
    view = legs(attempt(1, 503), attempt(2))
    assert tabs_of(view, {"leg": "3"}).leg.status == 200
    tabs = tabs_of(view, {"leg": "3", "attempt": "1"})
    assert tabs.leg.status == 503
    assert [tab.label for tab in tabs.attempts] == ["Attempt 1: 503", "Attempt 2: 200"]
    assert tabs.legs[1].fact == "2 attempts"


def test_every_link_keeps_what_else_was_chosen():
    tabs = tabs_of(legs(attempt(1, None), attempt(2)), {"leg": "2", "attempt": "1", "view": "raw"})
    assert tabs.legs[2].url == "?leg=3&view=raw&attempt=1#legs"
    assert tabs.views[1].url == "?leg=2&view=json&attempt=1#legs"
    assert tabs.attempts[1].url == "?leg=2&view=raw&attempt=2#legs"
    assert tabs.attempts[0].label == "Attempt 1: failed"


@pytest.mark.parametrize("query", [{"leg": "5"}, {"leg": "x"}, {"view": "x"}, {"attempt": "9"}])
def test_what_there_is_not_is_as_if_not_asked_for(query):
    view = legs(attempt(1))
    assert tabs_of(view, query) == tabs_of(view, {})


def test_json_is_printed_and_read_back_the_same():
    tabs = tabs_of(legs(attempt(1)), {"view": "json"})
    assert json.loads(tabs.json) == ASKED
    assert '\n  "model": "deepseek-v4"' in tabs.json


def test_where_nothing_went_to_a_vendor_its_legs_are_not_there():
    view = LegsView(Leg(1, absence="refused"), (), Leg(4, absence="refused"))
    assert tabs_of(view, {"leg": "2"}).leg is None
    assert tabs_of(view, {"leg": "3"}).diff is None
    assert tabs_of(view, {"leg": "4"}).diff is None
