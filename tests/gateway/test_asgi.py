"""The application's life: up when its stores are, and down in words where they are not."""

import asyncio
from typing import Any

import pytest

from gateway.runtime import process
from tests.stack import free_port


@pytest.mark.filterwarnings("ignore:No directory at")  # static files are not collected in tests
def test_a_gateway_that_cannot_start_says_so_to_its_server(settings, monkeypatch) -> None:
    """A raise would be taken for "no lifespan" by servers that then serve without a relay."""
    from gateway.asgi import Farthing

    monkeypatch.setattr(process, "START_WITHIN_S", 0.05)
    settings.DATABASE_URL = f"postgresql://nobody@127.0.0.1:{free_port()}/farthing"
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(Farthing()({"type": "lifespan"}, receive, send))

    assert sent == [{"type": "lifespan.startup.failed", "message": "TimeoutError"}]
