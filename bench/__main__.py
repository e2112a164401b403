"""``python -m bench [--quick]``: what `make bench` and `make bench-quick` run.

Starts all that it needs on loopback, measures in rounds that take turns, prints, writes
var/bench.json, and ends what it has started. See docs/performance.md.
"""

import argparse
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import measure, report
from bench.load import LoadError
from bench.machine import describe
from bench.measure import Meter
from bench.seed import Ground
from bench.stores import Keys, Stores
from bench.targets import make_target
from bench.workshop import Workshop, plain_environment
from gateway.supervisor.errors import StartError

TENANTS = 1_000
MAIN = "bench_main"


@dataclass(frozen=True, slots=True)
class Places:
    """Where things listen and what they are called."""

    vendor_port: int
    vendor_url: str
    keys: Keys


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def bench(workshop: Workshop, result: Path, *, quick: bool) -> None:
    begun = time.monotonic()
    facts = describe()
    load_program, vendor_program = workshop.compile("load"), workshop.compile("vendor")
    _vendor, vendor_port = workshop.vendor(vendor_program)
    vendor_url = f"http://127.0.0.1:{vendor_port}/v1"
    say("Starting PostgreSQL and Valkey, and filling in the tenants …")
    stores = Stores(workshop)
    keys = stores.database(Ground(MAIN, vendor_url, tenants=TENANTS, with_limited_keys=True))
    facts |= stores.settings()
    facts["a durable commit alone"] = f"{stores.commit_ms():.2f} ms"
    gateway, port = workshop.application(
        "gateway", "gateway.asgi:application", stores.environment(MAIN)
    )
    here = (gateway.pid, port)
    folder = workshop.folder
    farthing = make_target(folder, "farthing", "Farthing", here, keys.keys)
    limited = make_target(folder, "farthing_limited", "Farthing, limited keys", here, keys.limited)
    hot = make_target(folder, "farthing_hot", "Farthing, one tenant", here, [keys.hot])
    direct = make_target(folder, "direct", "direct", (None, vendor_port), ["bench"])
    reference, port = workshop.application(
        "reference",
        "bench.reference:application",
        {**plain_environment(), "BENCH_VENDOR_URL": vendor_url},
    )
    relay = make_target(folder, "aiohttp", "bare ASGI + aiohttp", (reference.pid, port), ["bench"])
    targets = [farthing, limited, relay]
    meter = Meter(load_program, stores.postgres_pid, measure.QUICK if quick else measure.FULL)
    meter.idle_memory(farthing)
    meter.every_key_once(farthing, TENANTS)
    meter.every_key_once(limited, TENANTS)
    for target in (*targets, hot):
        meter.warm_up(target)
    for number in range(meter.sizes.rounds):
        say(f"Round {number + 1} of {meter.sizes.rounds} …")
        meter.round(targets, direct, number)
        meter.hot_tenant(hot, farthing)
    meter.stream_memory(farthing)
    medians = meter.medians()
    report.write(result, medians)
    say("\n" + "\n".join(f"{name}: {value}" for name, value in facts.items()) + "\n")
    say(report.table({t.row: t.title for t in (*targets, direct)}, medians))
    say("\n".join(("", *report.LEGEND, "")))
    say(report.goals(medians))
    for what, why in meter.failures.items():
        say(f"{what} failed: {why}")
    say(f"\n{time.monotonic() - begun:.0f} s; the numbers are in {result}.")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ours alone, in under two minutes")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    var_dir = Path(os.environ.get("VAR") or "var").absolute()
    try:
        with Workshop(var_dir / "bench") as workshop:
            bench(workshop, var_dir / "bench.json", quick=arguments.quick)
    except KeyboardInterrupt:
        say("Stopped before its end; everything that was started has been ended.")
        return 130
    except (StartError, LoadError) as error:
        for line in getattr(error, "details", ()):
            say(f"  | {line}")
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
