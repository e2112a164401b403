"""benchecho as the vendor that is checked, and two that stand before it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import uvicorn

from gateway.benchecho.app import Benchecho
from gateway.benchecho.stats import Stats
from gateway.models import KEYLESS, Model, Qualification, Route, Vendor
from gateway.qualification.authored import ARITHMETIC, JSON_OBJECT


@contextmanager
def served(application) -> Iterator[str]:
    """The base URL of an ASGI application on loopback."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_config=None, ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def benchecho() -> Iterator[str]:
    with served(Benchecho(Stats())) as base_url:
        yield base_url


class Stubborn:
    """benchecho that never hears of a client's leaving."""

    def __init__(self) -> None:
        self._benchecho = Benchecho(Stats())

    async def __call__(self, scope, receive, send) -> None:
        has_body = False

        async def hear():
            nonlocal has_body
            message = await receive()
            while has_body and message["type"] == "http.disconnect":
                import asyncio

                await asyncio.sleep(3_600)
            has_body = True
            return message

        await self._benchecho(scope, hear, send)


@dataclass
class Clever:
    """benchecho that can add and write JSON, unless it `is_ill`; counts what it was asked."""

    is_ill: bool = False
    asked: int = 0
    seen: list[dict[bytes, bytes]] = field(default_factory=list)
    base_url: str = ""

    def __post_init__(self) -> None:
        self._benchecho = Benchecho(Stats())

    async def __call__(self, scope, receive, send) -> None:
        message = await receive()
        self.asked += scope["method"] == "POST"
        self.seen.append(dict(scope["headers"]))
        text = answer_to(message.get("body", b""))
        if text is None or scope["method"] == "GET":
            first = [message]

            async def again():
                return first.pop() if first else await receive()

            await self._benchecho(scope, again, send)
            return
        text = "I would rather not." if self.is_ill else text
        body, content_type = rendered(text, is_stream=b'"stream":true' in message["body"])
        headers = [(b"content-type", content_type)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def answer_to(body: bytes) -> str | None:
    for prompt, answer in ((ARITHMETIC, "4"), (JSON_OBJECT, '{"city":"Paris","count":3}')):
        if json.dumps(prompt).encode() in body:
            return answer
    return None


def rendered(text: str, *, is_stream: bool) -> tuple[bytes, bytes]:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
    head = {"id": "chatcmpl-1", "created": 1, "model": "clever"}
    if not is_stream:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return json.dumps(whole).encode(), b"application/json"
    choices = [
        {"index": 0, "delta": {"content": text}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    chunk = {**head, "object": "chat.completion.chunk"}
    events = [{**chunk, "choices": [choice]} for choice in choices]
    events.append({**chunk, "choices": [], "usage": usage})
    texts = [*map(json.dumps, events), "[DONE]"]
    return "".join(f"data: {text}\n\n" for text in texts).encode(), b"text/event-stream"


@pytest.fixture
def clever() -> Iterator[Clever]:
    vendor = Clever()
    with served(vendor) as base_url:
        vendor.base_url = base_url
        yield vendor


def made_vendor(base_url: str, *models: str, name: str = "acme", **fields) -> Vendor:
    """A vendor that must qualify, with a route to each of the models."""
    values = {"credential": KEYLESS, "qualification": Qualification.REQUIRED, **fields}
    vendor = Vendor.objects.create(name=name, base_url=base_url, **values)
    for model in models:
        public = Model.objects.create(name=f"{name}-{model}")
        Route.objects.create(model=public, vendor=vendor, vendor_model=model)
    return vendor
