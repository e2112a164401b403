"""A vendor that says everything it knows: our credential, its name, its address."""

import asyncio

import orjson
import pytest

from gateway.relay import settling
from gateway.relay.exchange import Exchange
from tests.gateway.relay.driver import CREDENTIAL, Client, Stage, a_vendor, accepted, run
from tests.gateway.upstream.vendor import Vendor, Wire, sized
from tests.raw_vendor import chunk

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def words(wire: Wire) -> str:
    head = wire.vendor.heads[-1].decode()
    return (
        f"north refused this at {wire.vendor.url}/v1/chat/completions?debug={CREDENTIAL} "
        f"(host localhost:{wire.vendor.port}): {head} <{CREDENTIAL}> x{CREDENTIAL.upper()}x"
    )


def error(wire: Wire, **fields: str) -> bytes:
    return orjson.dumps({"error": {"message": words(wire), **fields}})


def refused(wire: Wire) -> bytes:
    return sized(error(wire, code=CREDENTIAL, param=CREDENTIAL), status=b"400 Bad Request")


def refused_as_fastapi_does(wire: Wire) -> bytes:
    body = {"detail": [{"loc": ["header", CREDENTIAL], "msg": words(wire)}]}
    return sized(orjson.dumps(body), status=b"422 Odd")


def refused_in_plain_words(wire: Wire) -> bytes:
    return sized(words(wire).encode(), b"Content-Type: text/plain", status=b"400 Bad Request")


def broken(wire: Wire) -> bytes:
    return sized(error(wire), b"X-Key: " + CREDENTIAL.encode(), status=b"500 Broken")


def unpaid(wire: Wire) -> bytes:
    return sized(error(wire), status=b"401 Who")


def error_under_200(wire: Wire) -> bytes:
    return sized(error(wire, type="invalid_request_error"))


def error_event_first(wire: Wire) -> bytes:
    return EVENTS + b"event: error\ndata: " + error(wire, type="invalid_request_error") + b"\n\n"


def error_event_after_content(wire: Wire) -> bytes:
    return EVENTS + chunk("Hello") + b"data: " + error(wire, code=CREDENTIAL) + b"\n\n"


ECHOES = [
    refused,
    refused_as_fastapi_does,
    refused_in_plain_words,
    broken,
    unpaid,
    error_under_200,
    error_event_first,
    error_event_after_content,
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("echo", ECHOES)
def test_nothing_of_it_reaches_the_client(echo, stream, settings, monkeypatch) -> None:
    settings.HEARTBEAT_S = 15.0
    monkeypatch.setattr(settling, "_send_task", lambda _id: None)
    client, stage_of = Client(), []

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(echo(wire))

    async def work() -> None:
        async with Vendor(script) as vendor:
            stage = Stage()
            stage_of.append((stage, vendor.port))
            access = a_vendor(
                f"{vendor.url}/v1",
                hidden_words=("north", f"{vendor.url}/v1", f"localhost:{vendor.port}", CREDENTIAL),
            )
            exchange = Exchange(stage, accepted(access, stream=stream), [])
            await asyncio.wait_for(exchange.answer(client.send, client.receive), 20)
            await stage.close()

    run(work)
    (stage, port) = stage_of[0]
    said = b"".join(b"%b: %b\n" % header for header in client.headers.items()) + client.body
    assert b'"error"' in client.body or echo is error_event_after_content
    for private in (CREDENTIAL, "canary", "north", str(port), "http://"):
        assert private.encode() not in said.lower()
    items = [*stage.settlements.items, *stage.estimates.items]
    kept = orjson.dumps([(item["attempts"], item.get("message")) for item in items])
    assert CREDENTIAL.encode() not in kept.lower()
    assert len(items) == 1
