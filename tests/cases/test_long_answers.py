"""Answers longer than what was held for them: carried on, or ended in good order."""

import pytest

from billing.audit import audit
from billing.messages import CUT_SHORT
from billing.models import Message, Transfer
from gateway.relay.cover import LOOK_EVERY_BYTES
from gateway.upstream.protocol import READ_MOST_BYTES
from tests.cases.runner import Ask, Case, Gets, Played, estimated, vendors
from tests.cases.wire import ROLE, STOP, Answer, event, stream, text, usage
from tests.stack import until

STREAM = Ask(fields={"stream": True})
HELD_TOKENS = 4_096  # a model's default, where the client sets no bound
WORD = event(text(" hello"))
WORDS = b"".join([WORD] * 50)
OVERRUN_TOKENS = (LOOK_EVERY_BYTES + READ_MOST_BYTES) // len(WORD) + 1
ENOUGH_FOR_ONE = "0.017"  # a hold of 4,096 tokens at 4.00 a million, and little more


def holds_of(played: Played) -> list[int]:
    holds = Transfer.objects.filter(link=played.exchange.id, code="hold").order_by("id")
    return list(holds.values_list("amount_nanos", flat=True))


def was_extended(played: Played) -> None:
    first, *more = holds_of(played)
    assert more
    assert first < played.exchange.charge.charge_nanos <= first + sum(more)
    assert played.exchange.charge.shortfall_nanos == 0
    assert audit().differences == ()


def was_ended(played: Played) -> None:
    charge = played.exchange.charge
    assert len(holds_of(played)) <= 2
    assert charge.shortfall_nanos <= OVERRUN_TOKENS * 4_000
    assert played.exchange.finish_reason == "length"
    assert played.exchange.message["user_message"] == CUT_SHORT
    told = Message.objects.get(tenant=played.caller.tenant)
    assert (told.category, told.user_message, told.count) == ("limit", CUT_SHORT, 1)
    assert until(played.calls[0].left.is_set)
    assert audit().differences == ()


def needs_no_more(played: Played) -> None:
    assert len(holds_of(played)) == 1


def endless(**how) -> Answer:
    return Answer(pieces=[WORDS], label="text/event-stream", times=200, end="silence", **how)


CASES = [
    Case(
        id="long-extended",
        rule="without max_tokens more is held while the stream goes on",
        sends=stream(ROLE, *[WORDS] * 120, STOP, usage(10, 6_000)),
        asks=STREAM,
        gets=Gets(done=True, finish="stop"),
        pays=vendors(10, 6_000, "0.024010"),
        also=was_extended,
    ),
    Case(
        id="long-ended",
        rule="where the money carries no more the answer ends with a reason, and so does the call",
        sends=endless(),
        asks=STREAM,
        balance=ENOUGH_FOR_ONE,
        gets=Gets(done=True, finish="length"),
        pays=estimated((HELD_TOKENS, HELD_TOKENS + OVERRUN_TOKENS), (3, 40), outcome="answered"),
        also=was_ended,
    ),
    Case(
        id="long-thinking",
        rule="thinking is output",
        sends=stream(
            ROLE,
            *[WORDS.replace(b'"content"', b'"reasoning_content"')] * 120,
            STOP,
            usage(10, 6_000, completion_tokens_details={"reasoning_tokens": 6_000}),
        ),
        asks=STREAM,
        gets=Gets(done=True, finish="stop"),
        pays=vendors(10, 6_000, "0.024010"),
        also=was_extended,
    ),
    Case(
        id="long-bounded",
        rule="a vendor that keeps to max_tokens needs no more",
        sends=stream(ROLE, *[WORDS] * 20, STOP, usage(10, 1_000)),
        asks=Ask(fields={"stream": True, "max_tokens": 1_000}),
        gets=Gets(done=True, finish="stop"),
        pays=vendors(10, 1_000, "0.004010"),
        also=needs_no_more,
    ),
    Case(
        id="long-unbounded",
        rule="a vendor that does not keep to max_tokens is held for, or left",
        sends=endless(),
        asks=Ask(fields={"stream": True, "max_tokens": 1_000}),
        balance="0.0041",
        gets=Gets(done=True, finish="length"),
        pays=estimated((1_000, 1_250 + OVERRUN_TOKENS), (3, 40)),
        also=was_ended,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_long_answers(stage, case: Case) -> None:
    stage.play(case)
