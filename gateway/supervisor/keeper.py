"""Keeping children alive: one that ends is started again, ever more slowly if it goes on."""

import time
from collections.abc import Callable

from gateway.supervisor.errors import StartError
from gateway.supervisor.processes import Child, describe_exit

BACKOFF_SECONDS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
HEALTHY_SECONDS = 20.0  # having lived so long, its next end counts as the first


class Kept:
    """One child that is to be there. `say` is given what happened, in words."""

    def __init__(self, child: Child, say: Callable[[str], None]) -> None:
        self.child = child
        self._say = say
        self._failures = 0
        self._started_at = time.monotonic()
        self._due_at: float | None = None

    def tend(self) -> bool:
        """Start the child again where that is due; whether it has a new process now."""
        if self.child.is_running():
            return False
        now = time.monotonic()
        if self._due_at is None:
            self._due_at = now + self._next_delay(now)
        if now < self._due_at:
            return False
        self._due_at = None
        return self._restart(now)

    def _next_delay(self, now: float) -> float:
        if now - self._started_at >= HEALTHY_SECONDS:
            self._failures = 0
        delay = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        when = f"starting it again in {delay:g} s" if delay else "starting it again"
        command = self.child.command
        how = describe_exit(self.child.exit_code())
        self._say(f"{command.name} (process {self.child.pid}) {how}; {when}.")
        return delay

    def _restart(self, now: float) -> bool:
        self._started_at = now
        try:
            self.child.start()
        except StartError as error:
            self._say(str(error))
            return False
        self._say(f"{self.child.command.name} runs again as process {self.child.pid}.")
        return True
