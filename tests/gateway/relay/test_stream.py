"""What the stream keeps to itself: when it decodes, when it learns, what it notes."""

from gateway.relay.assemble import Fold
from gateway.relay.failures import Fault, VendorError
from gateway.relay.stream import (
    FINISHED,
    FREE_LEARNINGS,
    MAX_NAME_CHARS,
    EventStream,
    Facts,
    Wish,
    client_chunk,
    tidied,
)
from tests.gateway.relay.playbook import (
    DONE,
    ROLE,
    STOP,
    chunk,
    counts,
    delta,
    event,
    events,
    ours,
    usage_chunk,
)

WISH = Wish("chatcmpl-ours", "alias-m", wants_usage=False, n=1)


def stream(*, fold: Fold | None = None, wish: Wish = WISH) -> EventStream:
    return EventStream(wish, Facts(), fold, max_event_bytes=1000, max_folded_bytes=5000)


def test_ordinary_events_are_not_decoded(monkeypatch):
    read = stream()
    read.push(events(ROLE, chunk("a"), chunk("a")))
    monkeypatch.setattr(EventStream, "_on_event", None)
    out = read.push(events(chunk("b"), chunk("c"))) + read.push(event(chunk("d")))
    assert out == events(*map(ours, (chunk("b"), chunk("c"), chunk("d"))))
    assert read.event_count == 6


def test_an_odd_event_among_ordinary_ones_is_decoded_and_the_rest_passes():
    read = stream()
    read.push(events(ROLE, chunk("a"), chunk("a")))
    out = read.push(events(chunk("b"), {**chunk("c"), "usage": counts(1, 2)}, chunk("d")))
    assert out == events(*map(ours, (chunk("b"), chunk("c"), chunk("d"))))
    assert read._facts.raw_usage == counts(1, 2)


def test_the_beginning_and_the_end_of_a_stream_are_not_learned_from():
    read = stream()
    read.push(events(ROLE, chunk("a")))
    assert read._template is None
    read.push(events(delta({}), chunk("b", finish="stop")))
    assert read._template is None
    read.push(event(chunk("c")))
    assert read._template is not None


def test_learning_is_rationed():
    read = stream()
    read.push(event(ROLE))
    for at in range(40):
        read.push(event({**chunk("a"), f"x{at}": at}))
    assert read._learnings <= FREE_LEARNINGS + 2


def test_with_several_choices_all_must_be_seen_before_events_pass_as_bytes():
    read = stream(wish=Wish("chatcmpl-ours", "alias-m", wants_usage=False, n=2))
    read.push(events(chunk("a"), chunk("b")))
    assert read._ordinary is None
    second = chunk(choices=[{"index": 1, "delta": {"content": "B"}, "finish_reason": None}])
    read.push(events(second, chunk("c")))
    assert read._ordinary is not None
    assert read._facts.seen == {0, 1}


def test_the_outcome_is_what_the_stream_says_first():
    for sent, outcome in (
        (DONE + event({"error": "x"}), FINISHED),
        (event({"error": "x"}) + DONE, VendorError(message="x")),
        (b"data: " + b"x" * 2000 + b"\n\n", Fault.TOO_LARGE),
        (b"x" * 2000, Fault.TOO_LARGE),
        (event(STOP), None),
    ):
        read = stream()
        read.push(sent)
        assert read.outcome == outcome


def test_after_stop_nothing_passes_but_usage_is_noted():
    read = stream()
    read.push(events(ROLE, chunk("a"), chunk("b")))
    read.stop()
    assert read.push(events(chunk("c"), usage_chunk(1, 2))) == b""
    assert read._facts.raw_usage == counts(1, 2)


def test_a_fold_gets_the_chunks_and_the_client_nothing():
    fold = Fold()
    read = stream(fold=fold)
    assert read.push(events(ROLE, chunk("a"), STOP) + DONE) == b""
    assert fold.completion()["choices"][0]["message"]["content"] == "a"
    assert not read.sent_any


def test_held_preambles_are_bounded():
    read = stream()
    for _ in range(20):
        assert read.push(event({**chunk(choices=[]), "x": "y" * 200})) == b""
    assert read.outcome is Fault.TOO_LARGE


def test_open_choices_get_a_finish_reason():
    read = stream()
    second = chunk(choices=[{"index": 1, "delta": {"content": "B"}, "finish_reason": None}])
    read.push(events(chunk("a"), second, STOP))
    closing = ours(chunk(choices=[{"index": 1, "delta": {}, "finish_reason": "length"}]))
    assert read.finish_choices("length") == event(closing)


def test_facts_keep_the_first_names_and_the_last_finish_reason():
    facts = Facts()
    facts.note({**chunk("a"), "id": "", "created": 0})
    facts.note(chunk("b", finish="stop"))
    facts.note({**chunk("b", finish="length"), "id": "other", "created": 9})
    assert (facts.vendor_id, facts.created, facts.finish_reason) == ("chatcmpl-v1", 1, "length")
    assert facts.is_finished


def test_names_are_noted_as_they_can_be_stored():
    facts = Facts()
    facts.note({**chunk("a", finish="s\x00top"), "id": "v" * 9999, "model": "m\ud83d"})
    assert facts.vendor_id == "v" * MAX_NAME_CHARS
    assert (facts.vendor_model, facts.finish_reason) == ("m\ufffd", "s\ufffdtop")


def test_null_usage_stays_for_a_client_that_asked():
    asked = Wish("chatcmpl-ours", "alias-m", wants_usage=True, n=1)
    assert client_chunk({**chunk("a"), "usage": None}, asked)["usage"] is None
    assert "usage" not in client_chunk({**chunk("a"), "usage": counts(1, 1)}, asked)
    assert "usage" not in client_chunk({**chunk("a"), "usage": None}, WISH)


def test_a_tidied_choice_is_a_copy():
    choice = delta({}, finish_reason="", usage=counts(1, 1))["choices"][0]
    assert tidied(choice, keep_usage=False) == {"index": 0, "delta": {}, "finish_reason": None}
    assert tidied(choice, keep_usage=True)["usage"] == counts(1, 1)
    assert choice["finish_reason"] == ""


def test_usage_is_taken_out_of_a_delta_too():
    choice = delta({"content": "a", "usage": counts(1, 1)})["choices"][0]
    assert tidied(choice, keep_usage=False)["delta"] == {"content": "a"}
    assert choice["delta"]["usage"] == counts(1, 1)
