"""The metrics: each a short run against one target, repeated in rounds that take turns."""

import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.load import Load, LoadError, Seen, read, run
from bench.machine import cpu_seconds_when_quiet, resident_mb
from bench.targets import Target

WARM_UP_SECONDS = 0.7
STREAMS_OPEN = 1_000
STREAMS_SECONDS = 20.0
STREAMS_STAGGER_MS = 1_500
STREAMS_LOOK_SECONDS = 6.0  # a stream lives for 52 × 150 ms = 7.8 s

Results = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long one run of each metric takes, and how often it is repeated."""

    rounds: int
    plain_seconds: float
    stream_seconds: float
    paced_seconds: float
    single_count: int
    sixteen_seconds: float


QUICK = Sizes(3, 1.2, 1.2, 2.0, 200, 1.0)
FULL = Sizes(5, 3.0, 3.0, 4.0, 500, 3.0)


class Meter:
    """Takes numbers by row and metric; what is reported is their median."""

    def __init__(self, load_program: Path, postgres_pid: int, sizes: Sizes) -> None:
        self._program = load_program
        self._postgres_pid = postgres_pid
        self.sizes = sizes
        self.taken: Results = defaultdict(lambda: defaultdict(list))
        self.failures: dict[str, str] = {}

    def medians(self) -> dict[str, dict[str, float]]:
        return {
            row: {name: median(numbers) for name, numbers in metrics.items()}
            for row, metrics in self.taken.items()
        }

    def warm_up(self, target: Target, seconds: float = WARM_UP_SECONDS) -> None:
        for kind in ("plain", "stream"):
            self._run(target, kind, Load(16, seconds), may_fail=True)

    def every_key_once(self, target: Target, count: int) -> None:
        """So that no key or model is met for the first time while it is measured."""
        self._run(target, "plain", Load(32, 60.0, count=count))

    # --- the rows ------------------------------------------------------------------------------

    def round(self, targets: Sequence[Target], direct: Target, number: int) -> None:
        """All metrics of all targets, so close to each other that they meet the same machine."""
        turned = [*targets[number % len(targets) :], *targets[: number % len(targets)]]
        for metric in (self.plain, self.stream):
            for target in turned:
                self._guarded(metric, target)
        for metric in (self.paced, self.single, self.sixteen):
            baseline = metric(direct)
            for target in turned:
                self._guarded(metric, target, baseline)

    def plain(self, target: Target) -> Seen:
        """Requests per CPU-second of the gateway, 64 at once; what PostgreSQL used beside it."""
        postgres = cpu_seconds_when_quiet(self._postgres_pid)
        seen, used = self._metered(target, "plain", Load(64, self.sizes.plain_seconds))
        postgres = cpu_seconds_when_quiet(self._postgres_pid) - postgres
        self._take(target, "requests_per_cpu_second", seen.requests / used)
        self._take(target, "requests_per_second", seen.requests_per_second)
        if target.row.startswith("farthing"):
            self._take(target, "postgres_us_per_request", postgres / seen.requests * 1e6)
        return seen

    def stream(self, target: Target) -> Seen:
        seen, used = self._metered(target, "stream", Load(64, self.sizes.stream_seconds))
        self._take(target, "events_per_cpu_second", seen.events / used)
        return seen

    def paced(self, target: Target, direct: Seen | None = None) -> Seen:
        load = Load(256, self.sizes.paced_seconds, stagger_ms=500)
        seen = self._run(target, "paced", load)
        self._take(target, "paced_events_per_second", seen.events_per_second)
        if direct is not None:
            self._take(target, "paced_share", seen.events_per_second / direct.events_per_second)
        return seen

    def single(self, target: Target, direct: Seen | None = None) -> Seen:
        seen = self._run(target, "plain", Load(1, 10.0, count=self.sizes.single_count))
        self._take(target, "p50_ms_one_at_a_time", seen.p50_ms)
        if direct is not None:
            self._take(target, "added_p50_ms", seen.p50_ms - direct.p50_ms)
        return seen

    def sixteen(self, target: Target, direct: Seen | None = None) -> Seen:
        seen = self._run(target, "plain", Load(16, self.sizes.sixteen_seconds))
        self._take(target, "p99_ms_16_at_once", seen.p99_ms)
        if direct is not None:
            self._take(target, "added_p99_ms", seen.p99_ms - direct.p99_ms)
        return seen

    # --- ours alone ----------------------------------------------------------------------------

    def hot_tenant(self, hot: Target, spread: Target) -> None:
        """Throughput of one tenant's 64 at once over that of many tenants' 64 at once."""
        load = Load(64, self.sizes.plain_seconds)
        one = self._run(hot, "plain", load).requests_per_second
        many = self._run(spread, "plain", load).requests_per_second
        self._take(spread, "hot_tenant_ratio", one / many)

    def growth(self, base: Target, grown: dict[str, Target]) -> None:
        """A request's cost on larger ground over its cost on small ground, ours and PostgreSQL's."""
        small = self._cost_us(base)
        for name, target in grown.items():
            ours_us, postgres_us = self._cost_us(target)
            self._take(target, "gateway_us_per_request", ours_us)
            self._take(target, "postgres_us_per_request", postgres_us)
            self.taken["farthing"][f"growth_{name}"].append(ours_us / small[0])
            self.taken["farthing"][f"growth_{name}_postgres"].append(postgres_us / small[1])

    def idle_memory(self, target: Target) -> None:
        self._take(target, "resident_mb_idle", resident_mb(_pid(target)))

    def stream_memory(self, target: Target) -> None:
        """Resident memory while 1,000 streams are open at once."""
        load = Load(STREAMS_OPEN, STREAMS_SECONDS, STREAMS_OPEN, STREAMS_STAGGER_MS)
        command = load.command(self._program, target.port, target.files["slow"])
        with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
            time.sleep(STREAMS_LOOK_SECONDS)
            self._take(target, "resident_mb_1000_streams", resident_mb(_pid(target)))
            output, _ = running.communicate(timeout=STREAMS_SECONDS)
        read(output, running.returncode)

    # --- how -----------------------------------------------------------------------------------

    def _cost_us(self, target: Target) -> tuple[float, float]:
        postgres = cpu_seconds_when_quiet(self._postgres_pid)
        seen, used = self._metered(target, "plain", Load(64, self.sizes.plain_seconds))
        postgres = cpu_seconds_when_quiet(self._postgres_pid) - postgres
        return used / seen.requests * 1e6, postgres / seen.requests * 1e6

    def _metered(self, target: Target, kind: str, load: Load) -> tuple[Seen, float]:
        """The run and the CPU seconds it took, what is done after the answers included."""
        pid = _pid(target)
        before = cpu_seconds_when_quiet(pid)
        seen = self._run(target, kind, load)
        return seen, max(cpu_seconds_when_quiet(pid) - before, 0.01)

    def _run(self, target: Target, kind: str, load: Load, *, may_fail: bool = False) -> Seen:
        return run(load, self._program, target.port, target.files[kind], may_fail=may_fail)

    def _take(self, target: Target, metric: str, number: float) -> None:
        self.taken[target.row][metric].append(number)

    def _guarded(self, metric: Callable[..., Seen], target: Target, *more: Seen) -> None:
        """A peer that fails a metric is reported, and does not end the run."""
        try:
            metric(target, *more)
        except LoadError as error:
            if target.row.startswith("farthing"):
                raise
            self.failures[f"{target.title}, {metric.__name__}"] = str(error)


def _pid(target: Target) -> int:
    if target.pid is None:
        raise ValueError(f"{target.title} has no process to look at.")
    return target.pid
