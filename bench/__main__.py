"""``python -m bench [--quick]``: what `make bench` and `make bench-quick` run.

Starts all that it needs on loopback, measures in rounds that take turns, prints, writes
var/bench.json, and ends what it has started. See docs/performance.md.
"""

import argparse
import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

from bench.course import FULL, QUICK, Course, Wishes
from bench.load import LoadError
from bench.workshop import Workshop
from gateway.supervisor.errors import StartError

BEGUN_S = time.monotonic()


def say(words: str) -> None:
    """What goes on is told with its second; what was found is not."""
    second = f"{time.monotonic() - BEGUN_S:4.0f} s  " if words.endswith("…") else ""
    sys.stdout.write(f"{second}{words}\n")
    sys.stdout.flush()


def wishes() -> Wishes:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--quick", action="store_true", help="ours alone, in under two minutes")
    parser.add_argument("--no-peers", action="store_true", help="without LiteLLM and Portkey")
    parser.add_argument("--filled-rows", type=int, help="exchanges in the tables called filled")
    arguments = parser.parse_args()
    wanted = QUICK if arguments.quick else FULL
    if arguments.no_peers:
        wanted = dataclasses.replace(wanted, with_peers=False)
    if arguments.filled_rows is not None:
        wanted = dataclasses.replace(wanted, filled_rows=arguments.filled_rows)
    return wanted


def main() -> int:
    wanted = wishes()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    var_dir = Path(os.environ.get("VAR") or "var").absolute()
    try:
        with Workshop(var_dir / "bench") as workshop:
            Course(workshop, wanted, say).run(var_dir / "bench.json")
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
