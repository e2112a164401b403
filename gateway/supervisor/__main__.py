"""``python -m gateway.supervisor``: what `make run` runs once the environment is there."""

import os
import resource
import sys

from gateway.supervisor.errors import StartError, StopRequested
from gateway.supervisor.options import read_options
from gateway.supervisor.signals import Signals
from gateway.supervisor.state import Var, unusable
from gateway.supervisor.supervisor import Supervisor, say

OPEN_FILES = 65536  # two sockets a stream; the usual soft limit of 1024 is soon reached


def main() -> int:
    """0 when it was asked to end, 1 when it could not start or go on."""
    signals = Signals()
    signals.install()
    raise_open_files()
    try:
        options = read_options(os.environ)
        var = Var(options.var_dir)
        var.open()
        return run(Supervisor(options, var, signals), var)
    except StartError as error:
        return tell(error)


def run(supervisor: Supervisor, var: Var) -> int:
    try:
        supervisor.start()
        supervisor.watch()
    except StopRequested:
        say("Stopping …")
        code = 0
    except StartError as error:
        code = tell(error)
    except OSError as error:
        code = tell(unusable(var.folder, error))
    finally:
        supervisor.stop()
    if code == 0:
        say(f"Everything has ended; the data stays in {var.folder}.")
    return code


def tell(error: StartError) -> int:
    for line in error.details:
        sys.stderr.write(f"  | {line}\n")
    sys.stderr.write(f"{error}\n")
    return 1


def raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    wanted = OPEN_FILES if unlimited else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
