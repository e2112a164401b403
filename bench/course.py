"""The benchmark from its first process to its last: what is started, in what order it is asked."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench import measure, report, stages
from bench.ground import Ground, extra_models
from bench.history import SOURCE_ROWS, multiply
from bench.machine import describe, used_when_quiet
from bench.measure import Meter
from bench.peers import start_peers
from bench.stages import Profiler
from bench.stores import Stores
from bench.targets import Target, make_target
from bench.verify import what_is_left
from bench.workshop import Workshop, plain_environment

TENANTS = 1_000
FEW = 10
MAIN = "bench_main"
GATEWAY = "gateway.asgi:application"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wishes:
    """`grows_apart`: keys, models and history each by itself. `filled_rows`: exchanges in it."""

    sizes: measure.Sizes
    growth_rounds: int
    grows_apart: bool
    many_keys: int
    many_models: int
    filled_rows: int
    with_peers: bool
    profile_seconds: float


QUICK = Wishes(
    sizes=measure.QUICK,
    growth_rounds=2,
    grows_apart=False,
    many_keys=1_000,
    many_models=100,
    filled_rows=100_000,
    with_peers=False,
    profile_seconds=2.5,
)
FULL = Wishes(
    sizes=measure.FULL,
    growth_rounds=4,
    grows_apart=True,
    many_keys=10_000,
    many_models=1_000,
    filled_rows=2_000_000,
    with_peers=True,
    profile_seconds=10.0,
)


@dataclass(slots=True)
class Course:
    workshop: Workshop
    wishes: Wishes
    say: Say
    skipped: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=describe)
    _vendor_url: str = ""
    _direct: Target = field(init=False)
    _stores: Stores = field(init=False)
    _meter: Meter = field(init=False)

    def run(self, result: Path) -> None:
        begun = time.monotonic()
        self._start_foundations()
        keys = self._stores.database(
            Ground(MAIN, self._vendor_url, tenants=TENANTS, with_limited_keys=True)
        )
        where = self._gateway("gateway", MAIN)
        farthing = self._target("farthing", "Farthing", where, keys.keys)
        limited = self._target("farthing_limited", "Farthing, limited keys", where, keys.limited)
        hot = self._target("farthing_hot", "Farthing, one tenant", where, [keys.hot])
        others = [self._reference(), *self._peers()]
        for target in (farthing, *others):
            self._meter.idle_memory(target)
        self._warm_up([farthing, limited], [hot, *others])
        self._rounds([farthing, *others], limited, hot)
        self._meter.stream_memory(farthing)
        profile = self._profile(farthing)
        used_when_quiet(where[0] or 0)
        self.facts["left behind"] = what_is_left(self.workshop, self._stores, keys, MAIN)
        self._growth()
        medians = report.with_ratios(self._meter.medians())
        report.write(result, medians)
        self._print([farthing, limited, *others, self._direct], medians, profile)
        self.say(f"\n{time.monotonic() - begun:.0f} s; the numbers are in {result}.")

    # --- what is started -----------------------------------------------------------------------

    def _start_foundations(self) -> None:
        programs = {name: self.workshop.compile(name) for name in ("load", "vendor")}
        _, port = self.workshop.vendor(programs["vendor"])
        self._vendor_url = f"http://127.0.0.1:{port}/v1"
        self._direct = self._target("direct", "direct", (None, port), ["bench"])
        self.say("Starting PostgreSQL and Valkey, and filling in the tenants …")
        self._stores = Stores(self.workshop)
        self._meter = Meter(programs["load"], self._stores.postgres_pid, self.wishes.sizes)
        self.facts |= self._stores.settings()
        self.facts["a durable commit alone"] = f"{self._stores.commit_ms():.2f} ms"
        self.facts["on"] = (
            f"authentication, durable hold and settle, transcripts; {TENANTS:,} tenants with a key"
            " each, in turn; 'limited keys' have both limits"
        )

    def _gateway(self, name: str, database: str) -> tuple[int | None, int]:
        environment = self._stores.environment(database)
        child, port = self.workshop.application(name, GATEWAY, environment)
        return child.pid, port

    def _target(
        self, row: str, title: str, where: tuple[int | None, int], keys: list[str]
    ) -> Target:
        return make_target(self.workshop.folder, row, title, where, keys)

    def _reference(self) -> Target:
        environment = {**plain_environment(), "BENCH_VENDOR_URL": self._vendor_url}
        application = "bench.reference:application"
        child, port = self.workshop.application("reference", application, environment)
        return self._target("aiohttp", "bare ASGI + aiohttp", (child.pid, port), ["bench"])

    def _peers(self) -> list[Target]:
        if not self.wishes.with_peers:
            self.skipped.append("LiteLLM and Portkey are left out of the quick run.")
            return []
        self.say("Starting LiteLLM and Portkey (installed on first use) …")
        peers = start_peers(self.workshop, self._vendor_url)
        self.skipped += peers.skipped
        return peers.targets

    # --- what is asked -------------------------------------------------------------------------

    def _warm_up(self, keyed: list[Target], others: list[Target]) -> None:
        for target in keyed:
            self._meter.every_key_once(target, TENANTS)
        for target in (*keyed, *others):
            self._meter.warm_up(target)

    def _rounds(self, targets: list[Target], limited: Target, hot: Target) -> None:
        rounds = self.wishes.sizes.rounds
        for number in range(rounds):
            self.say(f"Round {number + 1} of {rounds} …")
            self._meter.round(targets, self._direct, number)
            self._meter.limited_round(limited, self._direct)
            self._meter.hot_tenant(hot, targets[0])

    def _profile(self, target: Target) -> str:
        profiler = Profiler(self.workshop.folder)
        parts = []
        for kind in ("plain", "stream"):
            if not profiler.why_not:
                seconds = self.wishes.profile_seconds
                parts.append(stages.report(profiler, self._meter, target, kind, seconds))
        if profiler.why_not:
            self.skipped.append(f"The profile is skipped: {profiler.why_not}")
        return "\n".join(parts)

    def _growth(self) -> None:
        """Gateways on databases of their own, side by side, so that all meet the same machine."""
        self.say("Filling databases with keys, models and history …")
        keys, models, rows = (
            self.wishes.many_keys,
            self.wishes.many_models,
            self.wishes.filled_rows,
        )
        small = self._grown("small", FEW, FEW, 0)
        if self.wishes.grows_apart:
            large = {
                "keys": self._grown("keys", keys, FEW, 0),
                "models": self._grown("models", FEW, models, 0),
                "rows": self._grown("rows", FEW, FEW, rows),
            }
        else:
            large = {"all": self._grown("all", keys, models, rows)}
        self.facts["growth"] = (
            f"from {FEW} keys, {FEW} models and empty tables to {keys:,} keys, {models:,} models"
            f" and {rows:,} exchanges with all that belongs to them"
        )
        for number in range(self.wishes.growth_rounds):
            self.say(f"Growth, round {number + 1} of {self.wishes.growth_rounds} …")
            self._meter.growth(small, large)

    def _grown(self, name: str, keys: int, models: int, rows: int) -> Target:
        """A gateway on a database with so many keys and models, and so many exchanges behind it."""
        ground = Ground(f"bench_{name}", self._vendor_url, FEW, keys // FEW, models)
        made = self._stores.database(ground)
        names = extra_models(models)
        where = self._gateway(f"gateway-{name}", ground.name)
        folder, row, title = self.workshop.folder, f"growth_{name}", f"Farthing, {name}"
        target = make_target(folder, row, title, where, made.keys, models=names)
        self._meter.every_key_once(target, max(keys, models, SOURCE_ROWS))
        if rows:
            used_when_quiet(where[0] or 0)
            multiply(made.url, rows)
        self._meter.warm_up(target)
        return target

    # --- what is said --------------------------------------------------------------------------

    def _print(self, rows: list[Target], medians: report.Medians, profile: str) -> None:
        self.say("\n" + "\n".join(f"{name}: {value}" for name, value in self.facts.items()) + "\n")
        self.say(report.table({target.row: target.title for target in rows}, medians))
        self.say("\n".join(("", *report.LEGEND)))
        if profile:
            self.say(f"\n{profile}")
        self.say(f"\n{report.goals(medians)}\n")
        for sentence in self.skipped:
            self.say(sentence)
        for what, why in self._meter.failures.items():
            self.say(f"{what} failed: {why}")
