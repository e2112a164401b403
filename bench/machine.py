"""What the machine says about processes: CPU time, memory, what it is."""

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PARENT_FIELD, USER_FIELD, CHILD_SYSTEM_FIELD = 1, 11, 14  # of /proc/PID/stat, behind the name
QUIET_WINDOW_SECONDS = 0.1
QUIET_SECONDS_MAX = 5.0
QUIET_TICKS = 1  # a heartbeat is no work


@dataclass(frozen=True, slots=True)
class Used:
    """User and system time: the process's own, and with its descendants and those it reaped."""

    own_seconds: float
    family_seconds: float


def used(pid: int) -> Used:
    ticks = {member: _ticks(member) for member in descendants(pid)}
    own = sum(ticks[pid][:2])
    return Used(own / TICKS_PER_SECOND, sum(map(sum, ticks.values())) / TICKS_PER_SECOND)


def used_when_quiet(pid: int) -> Used:
    """The same once process and family have done what they put off: transcripts, roll-ups, logs."""
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    now = used(pid)
    while time.monotonic() < deadline:
        time.sleep(QUIET_WINDOW_SECONDS)
        before, now = now, used(pid)
        if (now.family_seconds - before.family_seconds) * TICKS_PER_SECOND <= QUIET_TICKS:
            break
    return now


def descendants(pid: int) -> list[int]:
    """The process itself and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                parents[int(entry.name)] = int(fields[PARENT_FIELD])
    family = [pid]
    for member in family:
        family.extend(child for child, parent in parents.items() if parent == member)
    return family


def resident_mb(pid: int, *, with_family: bool = False) -> float:
    """Resident memory in 10^6 bytes."""
    members = descendants(pid) if with_family else [pid]
    return sum(_status_kb(member, "VmRSS") for member in members) * 1024 / 1e6


def describe() -> dict[str, str]:
    """Facts to print above numbers, without which they say little."""
    load = ", ".join(f"{share:.1f}" for share in os.getloadavg())
    return {
        "cores": f"{len(os.sched_getaffinity(0))} ({_processor()}); load before: {load}",
        "kernel": platform.release(),
        "Python": platform.python_version(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _ticks(pid: int) -> list[int]:
    """User and system, then those of reaped children."""
    return [int(text) for text in _stat(pid)[USER_FIELD : CHILD_SYSTEM_FIELD + 1]]


def _status_kb(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
