"""The ASGI application: the relay's hot path, and Django for everything else."""

import logging
import os
from typing import Any

import django
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
django.setup()

from gateway.addresses import true_scope  # noqa: E402  # after setup, like all that follows
from gateway.cors import Cors  # noqa: E402
from gateway.hotpath import PATH, HotPath  # noqa: E402
from gateway.relay.exchange import Receive, Send  # noqa: E402
from gateway.relay.settling import resume  # noqa: E402
from gateway.runtime.process import Runtime  # noqa: E402

logger = logging.getLogger(__name__)
pages = get_asgi_application()


class Farthing:
    """Makes the runtime when the server starts and stops it when the server stops."""

    def __init__(self) -> None:
        self._hot_path: HotPath | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = true_scope(scope)
            if scope["path"] == PATH and scope["method"] == "POST" and self._hot_path is not None:
                await self._hot_path(scope, receive, send)
            else:
                await pages(scope, receive, send)  # type: ignore[arg-type]
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        runtime = Runtime()
        try:
            await runtime.start()
        except Exception as error:
            # Told to the server in words: some take a raise here for "no lifespan" and serve on.
            logger.exception("The gateway cannot start")
            await send({"type": "lifespan.startup.failed", "message": type(error).__name__})
            return
        resume(runtime)
        self._hot_path = HotPath(runtime)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await runtime.stop()
        await send({"type": "lifespan.shutdown.complete"})


application = Cors(Farthing())
