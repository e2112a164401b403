"""The metrics: each a short run against one target, repeated in rounds that take turns."""

import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.load import Load, LoadError, Seen, read, run
from bench.machine import resident_mb, used_when_quiet
from bench.targets import Target

WARM_UP_SECONDS = 0.7
TICK_SECONDS = 0.01
STREAMS_OPEN = 1_000
STREAMS_SECONDS = 20.0
STREAMS_STAGGER_MS = 1_500
STREAMS_LOOK_SECONDS = 3.5  # a stream lives for 52 × 100 ms = 5.2 s

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


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds: the process's own, its family's (its own included), PostgreSQL's."""

    own_seconds: float
    family_seconds: float
    postgres_seconds: float


QUICK = Sizes(3, 1.0, 1.0, 1.5, 200, 0.8)
FULL = Sizes(4, 2.5, 2.5, 4.0, 300, 2.5)


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

    def limited_round(self, target: Target, direct: Target) -> None:
        """What limits cost: the metrics in which one more round trip shows."""
        self.plain(target)
        self.single(target, self.single(direct))

    def plain(self, target: Target) -> Seen:
        """64 at once. `…_all` counts the processes beside the gateway too: Farthing's scribe."""
        seen, cost = self._cost(target, "plain")
        self._take(target, "requests_per_cpu_second", seen.requests / cost.own_seconds)
        self._take(target, "requests_per_cpu_second_all", seen.requests / cost.family_seconds)
        self._take(target, "requests_per_second", seen.requests_per_second)
        if target.is_ours:
            self._take(
                target, "postgres_us_per_request", cost.postgres_seconds / seen.requests * 1e6
            )
        return seen

    def stream(self, target: Target) -> Seen:
        seen, cost = self._cost(target, "stream")
        self._take(target, "events_per_cpu_second", seen.events / cost.own_seconds)
        self._take(target, "events_per_cpu_second_all", seen.events / cost.family_seconds)
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
        """A request's cost on larger ground over that on small ground, ours and PostgreSQL's."""
        small = self._cost_us(base)
        for name, target in grown.items():
            large = self._cost_us(target)
            for who, before, now in zip(("", "_postgres"), small, large, strict=True):
                self.taken["farthing"][f"growth_{name}{who}"].append(now / before)

    def idle_memory(self, target: Target) -> None:
        """Before the first request. `…_all` counts the processes beside it too."""
        self._take(target, "resident_mb_idle", resident_mb(_pid(target)))
        self._take(target, "resident_mb_idle_all", resident_mb(_pid(target), with_family=True))

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

    def cost_us(self, target: Target, kind: str) -> float:
        """Microseconds of the gateway process for one request, or for one event of a stream."""
        seen, cost = self._cost(target, kind)
        return cost.own_seconds / (seen.requests if kind == "plain" else seen.events) * 1e6

    def keep_busy(self, target: Target, kind: str, seconds: float) -> None:
        self._run(target, kind, Load(64, seconds))

    def _cost_us(self, target: Target) -> tuple[float, float]:
        seen, cost = self._cost(target, "plain")
        self._take(target, "gateway_us_per_request", cost.own_seconds / seen.requests * 1e6)
        self._take(target, "postgres_us_per_request", cost.postgres_seconds / seen.requests * 1e6)
        return cost.own_seconds / seen.requests, cost.postgres_seconds / seen.requests

    def _cost(self, target: Target, kind: str) -> tuple[Seen, Cost]:
        """A run at 64 at once and the CPU it took, what is done after the answers included."""
        pid = _pid(target)
        seconds = self.sizes.plain_seconds if kind == "plain" else self.sizes.stream_seconds
        before, postgres_before = used_when_quiet(pid), used_when_quiet(self._postgres_pid)
        seen = self._run(target, kind, Load(64, seconds))
        after, postgres_after = used_when_quiet(pid), used_when_quiet(self._postgres_pid)
        return seen, Cost(
            own_seconds=max(after.own_seconds - before.own_seconds, TICK_SECONDS),
            family_seconds=max(after.family_seconds - before.family_seconds, TICK_SECONDS),
            postgres_seconds=postgres_after.family_seconds - postgres_before.family_seconds,
        )

    def _run(self, target: Target, kind: str, load: Load, *, may_fail: bool = False) -> Seen:
        return run(load, self._program, target.port, target.files[kind], may_fail=may_fail)

    def _take(self, target: Target, metric: str, number: float) -> None:
        self.taken[target.row][metric].append(number)

    def _guarded(self, metric: Callable[..., Seen], target: Target, *more: Seen) -> None:
        """A peer that fails a metric is reported, and does not end the run."""
        try:
            metric(target, *more)
        except LoadError as error:
            if target.is_ours:
                raise
            self.failures[f"{target.title}, {metric.__name__}"] = str(error)


def _pid(target: Target) -> int:
    if target.pid is None:
        raise ValueError(f"{target.title} has no process to look at.")
    return target.pid
