"""Slow streams held open for ten minutes: ``python -m bench.held_streams [--streams N]``.

One gateway process with everything on (see docs/performance.md), N streams with an event every 12
seconds. Prints the process's resident memory while nothing runs, and every half minute; at the end
what a stream takes, and how much memory has grown from the second minute to the last.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.ground import Ground
from bench.load import Load, read
from bench.machine import resident_mb
from bench.measure import FULL, STREAMS_STAGGER_MS, Meter
from bench.stores import Stores
from bench.targets import make_target
from bench.workshop import Workshop

DATABASE = "bench_held"
GATEWAY = "gateway.asgi:application"
TENANTS = 100
SECONDS = 640.0  # more than the streams take
LOOK_SECONDS = 30.0
LOOKS = 20
SETTLED_LOOK = 3  # by then all are open, and what is made once has been made


def main(streams: int) -> int:
    with Workshop(Path(os.environ.get("VAR") or "var").absolute() / "bench") as workshop:
        programs = {name: workshop.compile(name) for name in ("load", "vendor")}
        _, vendor_port = workshop.vendor(programs["vendor"])
        stores = Stores(workshop)
        ground = Ground(DATABASE, f"http://127.0.0.1:{vendor_port}/v1", tenants=TENANTS)
        keys = stores.database(ground).keys
        child, port = workshop.application("held", GATEWAY, stores.environment(DATABASE))
        assert child.pid is not None
        target = make_target(workshop.folder, "farthing_held", "held", (child.pid, port), keys)
        meter = Meter(programs["load"], stores.postgres_pid, FULL)
        meter.every_key_once(target, TENANTS)
        meter.warm_up(target)
        idle_mb = resident_mb(child.pid)
        load = Load(streams, SECONDS, streams, STREAMS_STAGGER_MS)
        command = load.command(programs["load"], port, target.files["held"])
        with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
            found_mb = _watch(child.pid)
            output, _ = running.communicate(timeout=SECONDS)
        seen = read(output, running.returncode)
    grown_mb = found_mb[-1] - found_mb[SETTLED_LOOK]
    sys.stdout.write(
        f"idle {idle_mb:.1f} MB; {streams} streams: {max(found_mb):.1f} MB at most, "
        f"{(max(found_mb) - idle_mb) * 1000 / streams:.0f} kB a stream; "
        f"{grown_mb:+.1f} MB from {SETTLED_LOOK * LOOK_SECONDS:.0f} s to "
        f"{LOOKS * LOOK_SECONDS:.0f} s; {seen.requests} ended well, {seen.errors} did not\n"
    )
    return 0


def _watch(pid: int) -> list[float]:
    found = []
    begun = time.monotonic()
    for look in range(1, LOOKS + 1):
        time.sleep(max(begun + look * LOOK_SECONDS - time.monotonic(), 0))
        found.append(resident_mb(pid))
        sys.stdout.write(f"{look * LOOK_SECONDS:4.0f} s  {found[-1]:.1f} MB\n")
        sys.stdout.flush()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.held_streams")
    parser.add_argument("--streams", type=int, default=500)
    sys.exit(main(parser.parse_args().streams))
