"""The hot path: how a chat completion gets to its view without paying for the way.

Django's ASGI handler runs each request through a thread-sensitive context, request signals and
the middleware chain; DRF adds negotiation and a rendered response. Together they cost several
times what the relay itself does (docs/performance.md), and their work concerns pages. So:

- the body is read here, against a bound; of a too large one nothing is kept;
- the view is called directly, with a request that parses nothing ahead, and hands back an
  exchange or an error;
- the exchange writes to the server's own `send`, which is also what slows a vendor down for a
  slow client: nothing is queued between the two sockets.

Everything else of the site is ordinary Django.
"""

import asyncio
from typing import Any

from django.http import HttpRequest

from gateway import errors
from gateway.errors import ApiError
from gateway.relay.accepted import Accepted
from gateway.relay.exchange import Exchange, Receive, Send
from gateway.relay.headers import Headers, encoded
from gateway.relay.idempotency import Replay
from gateway.relay.request import MAX_BODY_BYTES
from gateway.relay.view import ChatCompletionsView
from gateway.runtime.process import Runtime

PATH = "/v1/chat/completions"
DROPPED_SECONDS = 5.0


class _ClientLeft(Exception):  # an event, not an error
    """The client was gone before its request had arrived."""


class RelayRequest(HttpRequest):
    """Scope and body. Django's own parses query, cookies and every header before it is asked."""

    def __init__(self, scope: dict[str, Any], body: bytes) -> None:
        self.scope = scope
        self.method = scope["method"]
        self.path = self.path_info = scope["path"]
        self._body = body


class HotPath:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        try:
            body = await _read_body(scope, receive)
        except ApiError as error:
            await _drop_rest(scope, receive)
            await _send_error(send, error, [])
            return
        except _ClientLeft:
            return
        view = ChatCompletionsView()
        view.runtime = self._runtime
        relayed = await view.dispatch(RelayRequest(scope, body))
        if isinstance(relayed.outcome, Accepted):
            exchange = Exchange(self._runtime, relayed.outcome, relayed.headers)
            await exchange.answer(send, receive)
        elif isinstance(relayed.outcome, Replay):
            replay = relayed.outcome
            await _send_whole(send, replay.status, replay.headers, replay.body)
        else:
            await _send_error(send, relayed.outcome, relayed.headers)


async def _read_body(scope: dict[str, Any], receive: Receive) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > MAX_BODY_BYTES:
            raise errors.too_large(MAX_BODY_BYTES)
    chunks: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientLeft
        chunk = message.get("body", b"")
        size_bytes += len(chunk)
        if size_bytes > MAX_BODY_BYTES:
            raise errors.too_large(MAX_BODY_BYTES)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _drop_rest(scope: dict[str, Any], receive: Receive) -> None:
    """Reads on within bounds: many clients and proxies look for no answer while they write.

    Who asked whether to write at all (`Expect: 100-continue`) is told by the answer.
    """
    if any(name == b"expect" for name, _ in scope["headers"]):
        return
    dropped_bytes = 0
    try:
        async with asyncio.timeout(DROPPED_SECONDS):
            while dropped_bytes <= MAX_BODY_BYTES:
                message = await receive()
                dropped_bytes += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


async def _send_error(send: Send, error: ApiError, headers: Headers) -> None:
    body = error.body()
    headers = [
        *headers,
        *encoded(error.headers()),
        (b"content-length", str(len(body)).encode()),
    ]
    await _send_whole(send, error.status, headers, body)


async def _send_whole(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
