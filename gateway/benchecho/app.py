"""The ASGI side of benchecho: routes, pacing, and leaving when the client leaves.

Each completion counts once in `/stats`. No credential is asked for, and none is read.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from gateway.benchecho import answers
from gateway.benchecho.answers import ChatRequest, RequestRefusedError
from gateway.benchecho.behaviours import EXAMPLES, NAMED, Behaviour, Fault, behaviour_of
from gateway.benchecho.journal import NO_JOURNAL, Journal, Progress, journal_of_environment
from gateway.benchecho.stats import Stats

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
MS_PER_S: Final = 1000

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
HTML: Final = (b"content-type", b"text/html; charset=utf-8")
EVENT_STREAM: Final[Headers] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
]


class ClientGoneError(Exception):
    """The client closed its connection; there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A whole answer with an error status."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)


REFUSALS: Final[dict[Fault, Refusal]] = {
    Fault.REFUSED_401: Refusal(
        401,
        answers.error(
            "Incorrect API key provided.", "invalid_request_error", code="invalid_api_key"
        ),
    ),
    Fault.LIMITED_429: Refusal(
        429,
        answers.error("Rate limit reached.", "rate_limit_error", code="rate_limit_exceeded"),
        (JSON, (b"retry-after", b"%d" % answers.RETRY_AFTER_S)),
    ),
    Fault.BROKEN_500: Refusal(500, answers.HTML_500, (HTML,)),
}
ERROR_200: Final = answers.error("The model is overloaded.", "server_error", code="overloaded")


@dataclass(frozen=True, slots=True)
class Client:
    """Writes to one client and watches it."""

    receive: Receive
    send: Send

    async def body(self) -> bytes:
        """Raise RequestRefusedError for a body that is too large, ClientGoneError."""
        pieces: list[bytes] = []
        size_bytes = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            pieces.append(message.get("body", b""))
            size_bytes += len(pieces[-1])
            if size_bytes > MAX_BODY_BYTES:
                raise RequestRefusedError("the body is too large")
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def start(self, status: int, headers: Headers) -> None:
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, body: bytes, *, is_last: bool = False) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": not is_last})

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.write(body, is_last=True)

    async def wait(self, delay_ms: int | None) -> None:
        """Wait, for ever if None; raise ClientGoneError as soon as the client leaves."""
        try:
            async with asyncio.timeout(None if delay_ms is None else delay_ms / MS_PER_S):
                while (await self.receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return
        raise ClientGoneError


@dataclass(frozen=True, slots=True)
class Benchecho:
    """The application; its only state is its statistics."""

    stats: Stats
    journal: Journal = NO_JOURNAL

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            try:
                await self._route(scope["method"], scope["path"], Client(receive, send))
            except ClientGoneError:
                return

    async def _route(self, method: str, path: str, client: Client) -> None:
        match method, path:
            case "POST", "/v1/chat/completions":
                await self._complete(client)
            case "GET", "/v1/models":
                await client.answer(200, [JSON], _models())
            case "GET", "/health":
                await client.answer(200, [JSON], b'{"status":"ok"}')
            case "GET", "/stats":
                await client.answer(200, [JSON], orjson.dumps(self.stats.as_json()))
            case _:
                words = f"no such resource: {method} {path}"
                await client.answer(404, [JSON], answers.error(words, "invalid_request_error"))

    async def _complete(self, client: Client) -> None:
        try:
            request = answers.read_request(await client.body())
        except RequestRefusedError as refused:
            words = answers.error(str(refused), "invalid_request_error", param=refused.param)
            await client.answer(400, [JSON], words)
            return
        behaviour = behaviour_of(request.model)
        if behaviour is None:
            await client.answer(404, [JSON], _unknown_model(request.model))
            return
        await self._counted(client, request, behaviour)

    async def _counted(self, client: Client, request: ChatRequest, behaviour: Behaviour) -> None:
        counts = self.stats.counts_of(request.model)
        for count in counts:
            count.requests += 1
        progress, is_finished = Progress(), False
        try:
            is_finished = await _answer(client, request, behaviour, progress)
        except ClientGoneError:
            for count in counts:
                count.abandoned += 1
            return
        finally:
            self.journal.note(request, progress, is_finished=is_finished)
        for count in counts:
            count.finished += is_finished
            count.failed += not is_finished
            if is_finished:
                count.prompt_tokens += answers.count_prompt_tokens(request.messages)
                count.completion_tokens += answers.count_completion_tokens(behaviour)


async def _answer(
    client: Client, request: ChatRequest, behaviour: Behaviour, progress: Progress
) -> bool:
    """Return whether the client got a whole completion."""
    fault = behaviour.fault
    if fault is Fault.NEVER:
        await client.wait(None)
    if behaviour.first_byte_delay_ms:
        await client.wait(behaviour.first_byte_delay_ms)
    if fault in REFUSALS:
        refusal = REFUSALS[fault]
        await client.answer(refusal.status, list(refusal.headers), refusal.body)
        return False
    if fault is Fault.ERROR_200:
        await _answer_error_200(client, request)
        return False
    if request.is_stream and fault is not Fault.JSON_AS_STREAM:
        return await _answer_stream(client, request, behaviour, progress)
    progress.completion_tokens = answers.count_completion_tokens(behaviour)
    if not request.is_stream:
        return await _answer_whole(client, request, behaviour)
    await client.start(200, EVENT_STREAM)
    await client.write(answers.completion(request, behaviour), is_last=True)
    return True


async def _answer_error_200(client: Client, request: ChatRequest) -> None:
    if request.is_stream:
        await client.start(200, EVENT_STREAM)
        await client.write(b"data: %b\n\n" % ERROR_200, is_last=True)
    else:
        await client.answer(200, [JSON], ERROR_200)


async def _answer_whole(client: Client, request: ChatRequest, behaviour: Behaviour) -> bool:
    body = answers.completion(request, behaviour)
    if behaviour.fault is not Fault.CUT:
        await client.answer(200, [JSON], body)
        return True
    await client.start(200, [JSON, (b"content-length", b"%d" % len(body))])
    await client.write(body[: len(body) // 2])
    return False


async def _answer_stream(
    client: Client, request: ChatRequest, behaviour: Behaviour, progress: Progress
) -> bool:
    whole_tokens = answers.count_completion_tokens(behaviour)
    opening, paced, ending = answers.events(request, behaviour)
    if behaviour.fault is Fault.CUT:
        paced = paced[: len(paced) // 2]
    await client.start(200, EVENT_STREAM)
    await client.write(opening)
    for event in paced:
        if behaviour.chunk_delay_ms:
            await client.wait(behaviour.chunk_delay_ms)
        tokens = progress.completion_tokens + answers.TOKENS_PER_REPETITION
        progress.completion_tokens = min(tokens, whole_tokens)
        await client.write(event)
    if behaviour.fault is Fault.CUT:
        return False  # an answer left open makes the server close the connection
    await client.write(ending, is_last=True)
    return True


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        phase = (await receive())["type"]
        await send({"type": f"{phase}.complete"})
        if phase == "lifespan.shutdown":
            return


def _models() -> bytes:
    entries = [
        {"id": name, "object": "model", "created": 0, "owned_by": "farthing"}
        for name in (*NAMED, *EXAMPLES)
    ]
    return orjson.dumps({"object": "list", "data": entries})


def _unknown_model(model: str) -> bytes:
    words = f"The model `{model}` does not exist."
    return answers.error(words, "invalid_request_error", code="model_not_found", param="model")


application = Benchecho(Stats(), journal_of_environment())
