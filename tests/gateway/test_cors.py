import asyncio
from typing import Any

import pytest

from gateway.cors import Cors

ORIGIN = b"https://app.example"


@pytest.fixture(autouse=True)
def listed(settings) -> None:
    settings.CORS_ORIGINS = ["https://app.example", "http://localhost:3000"]


def call(
    path: str = "/v1/chat/completions",
    method: str = "POST",
    origin: bytes | None = ORIGIN,
    kind: str = "http",
) -> tuple[list[dict[str, Any]], int]:
    """What goes out, and how often the application behind was asked."""
    asked = 0
    sent: list[dict[str, Any]] = []

    async def application(scope, receive, send) -> None:
        nonlocal asked
        asked += 1
        await send({"type": "http.response.start", "status": 401, "headers": [(b"x", b"y")]})
        await send({"type": "http.response.body", "body": b"no"})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        raise AssertionError("nothing to receive")

    headers = [(b"host", b"x")] + ([(b"origin", origin)] if origin is not None else [])
    scope = {"type": kind, "path": path, "method": method, "headers": headers}
    asyncio.run(Cors(application)(scope, receive, send))
    return sent, asked


def headers_of(sent: list[dict[str, Any]]) -> dict[bytes, bytes]:
    return dict(sent[0]["headers"])


def test_a_preflight_is_answered_here_without_a_key() -> None:
    sent, asked = call(method="OPTIONS")
    assert asked == 0
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 204
    headers = headers_of(sent)
    assert headers[b"access-control-allow-origin"] == ORIGIN
    assert headers[b"vary"] == b"Origin"
    assert b"authorization" in headers[b"access-control-allow-headers"]
    assert headers[b"access-control-max-age"] == b"600"


def test_an_error_carries_the_origin_too() -> None:
    sent, asked = call()
    assert asked == 1
    headers = headers_of(sent)
    assert headers[b"access-control-allow-origin"] == ORIGIN
    assert headers[b"x"] == b"y"
    assert b"retry-after" in headers[b"access-control-expose-headers"]
    assert sent[1] == {"type": "http.response.body", "body": b"no"}


@pytest.mark.parametrize(
    "origin",
    [
        None,
        b"https://evil.example",
        b"https://app.example.evil.example",
        b"https://app.example:444",
        b"http://app.example",
        b"https://APP.example",
        b"null",
        b"",
        b"\xff",
        b"*",
    ],
)
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
def test_an_origin_that_is_not_listed_gets_no_leave(origin: bytes | None, method: str) -> None:
    sent, asked = call(origin=origin, method=method)
    assert asked == 1
    assert not [name for name, _ in sent[0]["headers"] if name.startswith(b"access-control")]


@pytest.mark.parametrize("path", ["/", "/keys", "/v1", "/accounts/login/", "/x/v1/models"])
def test_pages_are_for_nobody_else(path: str) -> None:
    sent, asked = call(path=path, method="OPTIONS")
    assert asked == 1
    assert b"access-control-allow-origin" not in headers_of(sent)


def test_with_no_list_nothing_is_added(settings) -> None:
    settings.CORS_ORIGINS = []
    sent, asked = call(method="OPTIONS")
    assert asked == 1
    assert b"access-control-allow-origin" not in headers_of(sent)


def test_there_is_never_a_wildcard_nor_credentials() -> None:
    for method in ("POST", "OPTIONS"):
        headers = headers_of(call(method=method)[0])
        assert b"*" not in headers.values()
        assert b"access-control-allow-credentials" not in headers


def test_what_is_no_http_passes() -> None:
    assert call(kind="lifespan")[1] == 1
