"""Being asked to end, and noticing at once when a child has ended."""

import os
import select
import signal
from types import FrameType

from gateway.supervisor.errors import StopRequested

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DRAIN_BYTES = 4096


class Signals:
    """Turns signals into a flag that `pause` looks at, so that nothing is interrupted half done."""

    def __init__(self) -> None:
        self.stop_requested = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def install(self) -> None:
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _note_only)
        for number in STOP_SIGNALS:
            signal.signal(number, self._request_stop)

    def pause(self, seconds: float) -> None:
        """Wait until a signal comes or time is up; raises StopRequested once we are to end."""
        if not self.stop_requested:
            readable, _, _ = select.select([self._reader], [], [], seconds)
            if readable:
                os.read(self._reader, DRAIN_BYTES)
        if self.stop_requested:
            raise StopRequested

    def _request_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop_requested = True


def _note_only(_number: int, _frame: FrameType | None) -> None:
    """The wake-up pipe has been written to by the time this runs; a default would not do that."""
