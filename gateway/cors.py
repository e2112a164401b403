"""Cross-origin calls of the API, for the origins that the operator lists.

Around everything, so that errors carry the headers too: a browser shows an answer without them
as a network failure. A preflight has no key and needs none.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings

from gateway.relay.exchange import Receive, Send

PREFIXES = ("/v1/", "/api/")
ALLOWED_METHODS = b"GET, POST, PATCH, DELETE, OPTIONS"
ALLOWED_HEADERS = (
    b"authorization, content-type, idempotency-key, x-api-key, x-client-request-id, "
    b"x-stainless-arch, x-stainless-async, x-stainless-lang, x-stainless-os, "
    b"x-stainless-package-version, x-stainless-retry-count, x-stainless-runtime, "
    b"x-stainless-runtime-version, x-stainless-timeout, openai-organization, openai-project"
)
EXPOSED_HEADERS = (
    b"x-request-id, x-farthing-cost, x-farthing-hold, idempotency-replayed, retry-after, "
    b"x-should-retry, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    b"x-ratelimit-reset-requests"
)
MAX_AGE_S = b"600"

Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


class Cors:
    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        origin = _origin(scope) if scope["type"] == "http" else None
        if origin is None:
            await self._application(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await _answer_preflight(send, origin)
        else:
            await self._application(scope, receive, _with_origin(send, origin))


def _origin(scope: dict[str, Any]) -> bytes | None:
    """The caller's origin where this is a cross-origin call of the API that we allow."""
    if not settings.CORS_ORIGINS or not scope["path"].startswith(PREFIXES):
        return None
    for name, value in scope["headers"]:
        if name == b"origin":
            return value if value.decode("latin-1") in settings.CORS_ORIGINS else None
    return None


def _origin_headers(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]


async def _answer_preflight(send: Send, origin: bytes) -> None:
    headers = [
        *_origin_headers(origin),
        (b"access-control-allow-methods", ALLOWED_METHODS),
        (b"access-control-allow-headers", ALLOWED_HEADERS),
        (b"access-control-max-age", MAX_AGE_S),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _with_origin(send: Send, origin: bytes) -> Send:
    async def send_with_origin(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            added = [*_origin_headers(origin), (b"access-control-expose-headers", EXPOSED_HEADERS)]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return send_with_origin
