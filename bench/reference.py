"""The reference: a relay of bare ASGI and aiohttp that authenticates, counts and bills nothing."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

VENDOR_URL = os.environ["BENCH_VENDOR_URL"] + "/chat/completions"
FORWARDED = {b"authorization", b"content-type"}
CONNECTIONS = 2_000

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Reference:
    def __init__(self) -> None:
        self._session: aiohttp.ClientSession

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._relay(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            self._session = session
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _relay(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in FORWARDED
        }
        async with self._session.post(VENDOR_URL, data=body, headers=headers) as response:
            kept = [
                (name.lower(), value)
                for name, value in response.raw_headers
                if name.lower() in {b"content-type", b"content-length"}
            ]
            start = {"type": "http.response.start", "status": response.status, "headers": kept}
            await send(start)
            async for piece in response.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


application = Reference()
