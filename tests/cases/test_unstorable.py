"""What a vendor says and PostgreSQL cannot store costs an exchange none of its facts."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.models import Transcript
from tests.cases.runner import NOTHING, Ask, Case, Gets, Pays, Played, estimated, vendors
from tests.cases.wire import (
    DONE,
    EVENTS,
    ROLE,
    STOP,
    Answer,
    chunk,
    completion,
    counts,
    text,
    usage,
    whole,
)
from tests.stack import until

ODD = "x\ud800y\x00z\udfff"
MENDED = "x\ufffdy\ufffdz\ufffd"
ODD_USAGE = counts(10, 5, **{ODD: {ODD: [ODD]}, "large": 10**30, "endless": 10**400})
MENDED_USAGE = counts(10, 5, **{MENDED: {MENDED: [MENDED]}, "large": 10**30, "endless": None})
STREAM = Ask(fields={"stream": True, "stream_options": {"include_usage": True}})
PAID = vendors(10, 5, "0.00003", outcome="answered")
CUT = {"error": "upstream_failed_mid_response", "done": False}


def said(*values: Any, done: bool = True, **how: Any) -> Answer:
    """Events with every odd character escaped."""
    pieces = [b"data: %b\n\n" % json.dumps(value).encode() for value in values]
    return Answer(pieces=(*pieces, DONE) if done else pieces, **{"label": EVENTS, **how})


def stopped(reason: str) -> dict[str, Any]:
    choice = completion()["choices"][0]
    return completion(tokens=counts(10, 5), choices=[{**choice, "finish_reason": reason}])


def error(**fields: Any) -> dict[str, Any]:
    return {"error": {"message": f"No {ODD}.", "type": ODD, "code": ODD, "param": ODD, **fields}}


def keeps(**facts: Any) -> Callable[[Played], None]:
    """Check columns of the exchange, and that the legs are kept as well."""

    def check(played: Played) -> None:
        exchange = played.exchange
        assert {name: getattr(exchange, name) for name in facts} == facts
        until(Transcript.objects.filter(exchange_id=exchange.id).exists)

    return check


def keeps_usage(played: Played) -> None:
    assert played.exchange.finish_reason == "stop"
    assert played.exchange.charge.vendor_usage == MENDED_USAGE


def keeps_attempt(**facts: Any) -> Callable[[Played], None]:
    def check(played: Played) -> None:
        (attempt,) = played.exchange.attempts
        assert {name: attempt[name] for name in facts} == facts

    return check


def tells_the_refusal(played: Played) -> None:
    assert played.exchange.error_code == "invalid_value"
    assert MENDED.replace("\ufffdz", " z") in played.exchange.message["user_message"]
    keeps_attempt(status=400, vendor_message=f"No {MENDED}.")(played)


def case(name: str, rule: str, sends: Answer, also: Callable[[Played], None], **fields) -> Case:
    return Case(id=f"odd-{name}", rule=rule, sends=sends, also=also, **{"pays": PAID, **fields})


def stream_case(name: str, rule: str, sends: Answer, also: Any, pays: Pays = PAID, **gets) -> Case:
    wants = Gets(**{"text": "Hello", "done": True, **gets})
    return case(name, rule, sends, also, asks=STREAM, gets=wants, pays=pays)


CASES = [
    case(
        "finish",
        "a finish reason is kept",
        whole(stopped(ODD)),
        keeps(finish_reason=MENDED, status_code=200),
    ),
    case(
        "names",
        "no name of the vendor's is in the way",
        whole({**stopped("stop"), "id": ODD, "model": ODD, "system_fingerprint": ODD, ODD: ODD}),
        keeps(finish_reason="stop"),
    ),
    case("usage", "usage is kept", whole({**completion(), "usage": ODD_USAGE}), keeps_usage),
    case(
        "usage-large",
        "so is an integer beyond 64 bits alone",
        whole(completion(tokens=counts(10, 5, large=10**30))),
        keeps(finish_reason="stop"),
    ),
    stream_case(
        "usage-stream",
        "in a stream too",
        said(ROLE, text("Hello"), STOP, chunk(usage=ODD_USAGE)),
        keeps_usage,
        usage_chunks=1,
    ),
    case(
        "estimate",
        "a worker that counts keeps it as well",
        whole({**completion(f"Hello {ODD}"), "usage": {**ODD_USAGE, **counts(10, 0)}}),
        keeps(finish_reason="stop"),
        pays=vendors(10, (1, 20), None, flags=("completion_estimated",)),
    ),
    case(
        "estimate-all",
        "and where it counts everything",
        whole({**stopped(ODD), "usage": {"prompt_tokens": ODD, ODD: 10**30}}),
        keeps(finish_reason=MENDED),
        pays=estimated((1, 5)),
    ),
    case(
        "refusal",
        "a refusal is told and kept",
        whole(error(), status="400 Bad Request"),
        tells_the_refusal,
        gets=Gets(status=400, error="invalid_value"),
        pays=NOTHING,
    ),
    case(
        "failure",
        "a failure is kept with its words",
        whole({**error(), "usage": ODD_USAGE}, status="500 Broken"),
        keeps_attempt(status=500, vendor_message=f"No {MENDED}.", usage=MENDED_USAGE),
        gets=Gets(status=502, error="upstream_unavailable"),
        pays=NOTHING,
    ),
    case(
        "unreadable",
        "so is an answer that is none",
        whole({ODD: ODD}),
        keeps_attempt(error="upstream_failed_mid_response"),
        gets=Gets(status=502, error="upstream_failed_mid_response"),
        pays=NOTHING,
    ),
    stream_case(
        "first",
        "an error instead of a stream is kept",
        said(error(code=429)),
        keeps_attempt(vendor_message=f"No {MENDED}."),
        pays=NOTHING,
        text=None,
        done=None,
        status=429,
        error="upstream_rate_limited",
    ),
    stream_case(
        "middle",
        "an error in the middle of one is kept",
        said(ROLE, text("Hello"), chunk(usage=ODD_USAGE), error(), done=False),
        keeps_attempt(vendor_message=f"No {MENDED}.", usage=MENDED_USAGE),
        pays=vendors(10, 5, "0.00003", outcome="partial"),
        **CUT,
    ),
    stream_case(
        "cut",
        "and so is what came of one that breaks off",
        said(ROLE, text("Hello"), done=False, end="reset"),
        keeps_attempt(error="upstream_failed_mid_response"),
        pays=estimated((1, 5), outcome="partial"),
        **CUT,
    ),
    stream_case(
        "text",
        "texts pass as they are",
        said(ROLE, text(ODD), STOP, usage(10, 5)),
        keeps(finish_reason="stop"),
        text=ODD,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_cannot_be_stored_costs_no_fact(stage, case: Case) -> None:
    played = stage.play(case)
    assert str(played.exchange.id) not in stage.logs()
    name = played.got.headers["x-request-id"]
    assert played.caller.get(f"/v1/requests/{name}").json()["state"] == "settled"
