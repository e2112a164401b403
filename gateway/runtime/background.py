"""Work that outlives the request that started it."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)

CANCEL_S = 1.0  # how long a cancelled task may take to clean up


class Background:
    """Keeps a reference to each task, logs what it raises, and waits for all at shutdown."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, within_s: float) -> None:
        """Wait for what runs, and for what that starts; then cancel what is left, to its end."""
        deadline_s = asyncio.get_running_loop().time() + within_s
        while self._tasks:
            left_s = deadline_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            await asyncio.wait(self._tasks, timeout=left_s)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCEL_S)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s failed", task.get_name(), exc_info=task.exception())
