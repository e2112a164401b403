"""Exact counts in a process of their own, beside a gateway.

A whole vocabulary takes 50 to 95 MB and half a second to build, and a prompt of megabytes seconds
to count: in the gateway's own process all its streams would wait. The child starts when somebody
first asks, ends with its parent or when it has had nothing to do, and is killed when it takes too
long. It counts one prompt at a time.
"""

import atexit
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Final

import orjson

from billing.estimation.estimates import Count, count_prompt

COUNT_WITHIN_S: Final = 10.0
"""From the question to its answer, the child's start and the vocabulary's building included."""
WAIT_S: Final = 5.0
"""For those who asked before."""
IDLE_S: Final = 600.0
_SIZE_BYTES: Final = 8
_ROOT: Final = Path(__file__).parents[2]


class NotCountedError(Exception):
    """The count was not to be had in time: others wait for theirs, or it takes too long."""


class Aside:
    """One child process; made when it is needed, and again after it ended."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", __name__)) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def count_prompt(
        self,
        request: Mapping[str, Any],
        *,
        model: str,
        family: str | None = None,
        wait_s: float = WAIT_S,
        within_s: float = COUNT_WITHIN_S,
    ) -> Count:
        """As `estimates.count_prompt`; blocks its thread. Raises NotCountedError."""
        question = orjson.dumps({"request": request, "model": model, "family": family})
        if not self._lock.acquire(timeout=wait_s):
            raise NotCountedError("others are being counted")
        try:
            answer = self._ask(question, within_s)
        finally:
            self._lock.release()
        if answer is None:
            raise NotCountedError("it could not be counted")
        error = answer.pop("expected_error")
        return Count(
            **{**answer, "flags": tuple(answer["flags"])},
            expected_error=None if error is None else Decimal(error),
        )

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _ask(self, question: bytes, within_s: float) -> dict[str, Any] | None:
        child = self._running()
        assert child.stdin is not None and child.stdout is not None  # noqa: PT018, S101  # pipes
        timer = threading.Timer(within_s, child.kill)
        timer.daemon = True
        timer.start()
        try:
            child.stdin.write(len(question).to_bytes(_SIZE_BYTES) + question)
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if not line:
            self.close()
            return None
        answer: dict[str, Any] | None = orjson.loads(line)
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            self._child = subprocess.Popen(  # noqa: S603  # our own module
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT
            )
        return self._child


ASIDE: Final = Aside()
"""The process's only one; its child ends when the process does, however it ends."""
atexit.register(ASIDE.close)


def serve(questions: IO[bytes], answers: IO[bytes], idle_s: float = IDLE_S) -> None:
    """Answer each question with a line, null for what cannot be counted, until there are none."""
    while select.select([questions], [], [], idle_s)[0]:
        size = questions.read(_SIZE_BYTES)
        if len(size) < _SIZE_BYTES:
            return
        answers.write(_answer(questions.read(int.from_bytes(size))) + b"\n")
        answers.flush()


def _answer(question: bytes) -> bytes:
    try:
        counted = count_prompt(**_arguments(orjson.loads(question)))
    except Exception:  # noqa: BLE001  # whatever it is, the next question is another
        return b"null"
    return orjson.dumps(asdict(counted), default=str)


def _arguments(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: asked[name] for name in ("request", "model", "family")}


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
