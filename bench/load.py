"""One run of the load generator, and what it saw."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

END_SECONDS = 30.0  # behind the run itself; the generator's own drain is shorter


class LoadError(Exception):
    """Requests failed: what was measured would not be what was asked."""


@dataclass(frozen=True, slots=True)
class Seen:
    """`requests` and `events` are all that ended well; `…_in_window` before the time was over."""

    requests: int
    requests_in_window: int
    events: int
    events_in_window: int
    window_seconds: float
    errors: int
    p50_ms: float
    p99_ms: float
    first_error: str

    @property
    def requests_per_second(self) -> float:
        return self.requests_in_window / self.window_seconds

    @property
    def events_per_second(self) -> float:
        return self.events_in_window / self.window_seconds


@dataclass(frozen=True, slots=True)
class Load:
    """`count` 0: as many as the seconds allow. `stagger_ms`: the connections start within it."""

    connections: int
    seconds: float
    count: int = 0
    stagger_ms: int = 0

    def command(self, program: Path, port: int, requests: Path) -> list[str]:
        options = ["-p", str(port), "-f", str(requests), "-c", str(self.connections)]
        options += ["-s", str(self.seconds), "-g", str(self.stagger_ms)]
        if self.count:
            options += ["-n", str(self.count)]
        return [str(program), *options]


def run(load: Load, program: Path, port: int, requests: Path, *, may_fail: bool = False) -> Seen:
    """Run it to its end. Raises LoadError if any request failed, unless it may."""
    done = subprocess.run(
        load.command(program, port, requests),
        capture_output=True,
        check=False,
        timeout=load.seconds + END_SECONDS,
    )
    return read(done.stdout, done.returncode, may_fail=may_fail)


def read(output: bytes, code: int, *, may_fail: bool = False) -> Seen:
    if code != 0 or not output:
        raise LoadError(f"The load generator ended with {code}.")
    seen = Seen(**json.loads(output))
    if seen.requests == 0 and seen.events == 0:
        raise LoadError(f"Nothing was answered: {seen.first_error or 'not one answer in time'}")
    if seen.errors and not may_fail:
        raise LoadError(f"{seen.errors} of {seen.requests + seen.errors}: {seen.first_error}")
    return seen
