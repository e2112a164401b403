"""Where a request's CPU time goes: the gateway's stacks, sampled by py-spy, told by stage.

py-spy lives in an environment of its own under var/bench and looks from outside: the product is
not touched. A sample belongs to the first stage whose words its stack has, read from the leaf up.
"""

import subprocess
import venv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bench.measure import Meter
from bench.targets import Target

SAMPLES_PER_SECOND = 200
INSTALL_SECONDS = 120.0
TOP_FUNCTIONS = 25
IDLE_LEAF = "_worker ("  # a thread of a pool that waits; py-spy takes it for a busy one
OTHER = "event loop and the rest (uvloop, asyncio)"

# (stage, parts of "function (file:line)"), the most particular first.
STAGES = (
    (
        "transcript: masking, packing, writing",
        ("runtime/recorder.py", "relay/transcript.py", "exchanges/", "relay/capture.py"),
    ),
    ("group commit: batching, psycopg, answers", ("billing/writer.py",)),
    (
        "settlement: what is owed, and its item",
        ("relay/settling.py", "billing/rating.py", "billing/usage.py"),
    ),
    ("hold: bound of the prompt", ("billing/estimation/",)),
    ("hold: its item and answer", ("_hold (gateway/relay/view.py", "billing/ledger.py")),
    ("limits: Redis", ("runtime/limits.py",)),
    ("authentication", ("_authenticate (", "runtime/principals.py", "keys/")),
    (
        "reading the request, body for the vendor",
        ("relay/request.py", "_read (gateway", "relay/json_text.py"),
    ),
    (
        "answer's bytes: parse, rewrite, usage",
        (
            "relay/answer.py",
            "relay/stream.py",
            "relay/template.py",
            "relay/sse.py",
            "relay/assemble.py",
            "relay/failures.py",
        ),
    ),
    ("upstream client", ("gateway/upstream/",)),
    ("exchange: driving, writing to the client", ("relay/exchange.py", "relay/attempt.py")),
    (
        "hot path, view and request objects",
        ("gateway/hotpath.py", "relay/view.py", "django/", "rest_framework/", "gateway/"),
    ),
    ("uvicorn: HTTP to and from the client", ("uvicorn/",)),
    ("background: catalog, heart-beat, listener", ("runtime/",)),
)


Stacks = list[tuple[list[str], int]]
"""Frames, root first, and how many samples had them."""


class Profiler:
    """Installed on first use; `why_not` is a sentence where that is not possible."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "py-spy" / "bin" / "py-spy"
        self._raw = folder / "stacks.txt"
        self.why_not = "" if self._program.exists() else _install(folder / "py-spy")

    def start(self, target: Target, seconds: float) -> subprocess.Popen[bytes]:
        """Sample the target for so many seconds, beside a load that the caller makes."""
        options = ["--rate", str(SAMPLES_PER_SECOND), "--duration", str(max(1, round(seconds)))]
        options += ["--format", "raw", "--output", str(self._raw), "--full-filenames"]
        command = [str(self._program), "record", "--pid", str(target.pid), *options]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def finish(self, running: subprocess.Popen[bytes], seconds: float) -> Stacks:
        """The stacks, root first, each with how many samples had it."""
        _, errors = running.communicate(timeout=seconds + 30)
        if running.returncode != 0:
            self.why_not = f"py-spy failed: {errors.decode(errors='replace').strip()[-200:]}"
            return []
        stacks = []
        for line in self._raw.read_text().splitlines():
            frames, _, count = line.rpartition(" ")
            if not frames.rpartition(";")[2].startswith(IDLE_LEAF):
                stacks.append((frames.split(";"), int(count)))
        return stacks


def _install(folder: Path) -> str:
    try:
        venv.create(folder, with_pip=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "py-spy"]
        subprocess.run(pip, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        return f"py-spy could not be installed ({type(error).__name__})."
    return ""


def report(profiler: Profiler, meter: Meter, target: Target, kind: str, seconds: float) -> str:
    """Sample a run at 64 at once; the µs are those of the run, so the sampling costs nothing."""
    unsampled_us = meter.cost_us(target, kind)
    running = profiler.start(target, seconds)
    meter.keep_busy(target, kind, seconds)
    stacks = profiler.finish(running, seconds)
    if not stacks:
        return ""
    unit = "request" if kind == "plain" else "event of a stream"
    return (
        f"Where the CPU of one {unit} goes ({unsampled_us:,.1f} µs of the gateway process):\n"
        f"{table(stacks, unsampled_us)}\nThe functions with most of it:\n{top_functions(stacks)}\n"
    )


def stage_of(frames: Iterable[str]) -> str:
    for frame in reversed(list(frames)):
        for stage, marks in STAGES:
            if any(mark in frame for mark in marks) and "serve.py" not in frame:
                return stage
    return OTHER


def table(stacks: Stacks, cpu_us: float) -> str:
    """Shares by stage, and the microseconds of a request (or event) that they come to."""
    total = sum(count for _, count in stacks) or 1
    by_stage: Counter[str] = Counter()
    for frames, count in stacks:
        by_stage[stage_of(frames)] += count
    lines = [f"  {'':44} {'share':>6} {'µs':>8}"]
    for stage, count in by_stage.most_common():
        share = count / total
        lines.append(f"  {stage:44} {share:6.1%} {share * cpu_us:8.1f}")
    return "\n".join(lines)


def top_functions(stacks: Stacks) -> str:
    """The functions in which most samples ended (their calls into C included)."""
    total = sum(count for _, count in stacks) or 1
    by_leaf: Counter[str] = Counter()
    for frames, count in stacks:
        function, _, where = frames[-1].partition(" (")
        path = where.rsplit(":", 1)[0].rpartition("site-packages/")[2]
        by_leaf[f"{function}  {path}"] += count
    return "\n".join(
        f"  {count / total:6.1%}  {leaf}" for leaf, count in by_leaf.most_common(TOP_FUNCTIONS)
    )
