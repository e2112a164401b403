"""The life of one `make run`: start everything in order, keep it alive, end everything in order."""

import errno
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from gateway.supervisor import ready
from gateway.supervisor.embedded import EmbeddedServer, start_postgres, start_valkey
from gateway.supervisor.errors import StartError
from gateway.supervisor.keeper import Kept
from gateway.supervisor.options import Options
from gateway.supervisor.processes import Child, failure, run_to_end, wait_until_ended
from gateway.supervisor.services import LOOPBACK, Service, Services, child_environment
from gateway.supervisor.signals import Signals
from gateway.supervisor.state import Secrets, Var

MIGRATE_SECONDS = 600.0
SEED_SECONDS = 120.0
READY_SECONDS = 120.0
POLL_SECONDS = 0.1
WATCH_SECONDS = 1.0
BACKLOG = 2048
# Together under the ten seconds in which everything has ended.
SERVICES_STOP_SECONDS = 5.5
FOUNDATIONS_STOP_SECONDS = 3.5

Answer = TypeVar("Answer")


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


class Supervisor:
    """`start`, then `watch` until StopRequested, then `stop`, which also undoes half a start."""

    def __init__(self, options: Options, var: Var, signals: Signals) -> None:
        self._options = options
        self._var = var
        self._signals = signals
        self._foundations: list[Kept] = []
        self._services: list[Kept] = []
        self._listener: socket.socket | None = None
        self._ready: dict[str, Any] | None = None

    def start(self) -> None:
        """Raises StartError or StopRequested; call `stop` also then."""
        started_at = time.monotonic()
        self._var.ready.unlink(missing_ok=True)
        orphans = self._var.end_orphans()
        if orphans:
            say(f"Ended {orphans} processes that an earlier run had left behind.")
        listener = self._listener = listen(self._options.port)
        base_url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        secrets = self._var.secrets()
        database_url = self._options.database_url or self._start_postgres(secrets)
        redis_url = self._options.redis_url or self._start_valkey(secrets)
        environment = child_environment(
            secrets, database_url, redis_url, str(self._var.folder / "spool")
        )
        services = Services(self._options, self._var, environment)
        say("Applying migrations …")
        run_to_end(services.migrate(), seconds=MIGRATE_SECONDS, pause=self._signals.pause)
        benchecho_url = self._start_benchecho(services)
        say("Filling in the demo …")
        demo = self._seed_demo(services, benchecho_url)
        self._start_services(services, listener.fileno())
        ask = partial(ready.served_models, base_url, demo["api_key"])
        model = ready.example_model(self._wait_for("gateway", ask))
        self._ready = {
            "base_url": base_url,
            "database_url": database_url,
            "redis_url": redis_url,
            **{name: demo[name] for name in ("api_key", "test_key", "tenant", "staff")},
            "benchecho_url": benchecho_url,
        }
        self._write_down()
        say(f"Everything answers after {time.monotonic() - started_at:.1f} s.")
        say(ready.table(base_url, demo, model, self._var.folder))

    def watch(self) -> None:
        """Start again what ends, until StopRequested comes out of the wait."""
        while True:
            self._signals.pause(WATCH_SECONDS)
            restarted = [kept.tend() for kept in (*self._foundations, *self._services)]
            if any(restarted):
                try:
                    self._write_down()
                except StartError as error:  # a full disk is no reason to stop serving
                    say(str(error))

    def stop(self) -> None:
        """End every child: those that serve first, in their own time, then what they stand on."""
        self._var.ready.unlink(missing_ok=True)
        if self._listener is not None:
            self._listener.close()
        for group, seconds in (
            (self._services, SERVICES_STOP_SECONDS),
            (self._foundations, FOUNDATIONS_STOP_SECONDS),
        ):
            children = [kept.child for kept in group]
            for child in children:
                child.ask_to_stop()
            wait_until_ended(children, seconds)
            for child in children:
                child.kill()

    def _start_postgres(self, secrets: Secrets) -> str:
        say("Starting PostgreSQL …")
        return self._start_server("postgres", start_postgres, secrets.database_password)

    def _start_valkey(self, secrets: Secrets) -> str:
        say("Starting Valkey …")
        return self._start_server("valkey", start_valkey, secrets.redis_password)

    def _start_server(self, name: str, start: Callable[..., EmbeddedServer], password: str) -> str:
        server = start(
            self._var.folder / name,
            password=password,
            log_path=self._var.logs / f"{name}.log",
            port=self._var.port(name),
            pause=self._signals.pause,
        )
        self._keep(server.child, self._foundations)
        self._var.keep_port(name, server.port)
        return server.url

    def _start_benchecho(self, services: Services) -> str:
        """Returns the base URL that the demo's catalog points to, the same at every start."""
        say("Starting benchecho …")
        port = self._var.port("benchecho")
        url = f"http://{LOOPBACK}:{port}/v1"
        self._launch(services.benchecho(port), self._foundations)
        self._wait_for("benchecho", partial(ready.get, f"{url}/models"))
        self._var.keep_port("benchecho", port)
        return url

    def _seed_demo(self, services: Services, benchecho_url: str) -> dict[str, Any]:
        """It keeps the demo's secrets under VAR by itself; what it prints is for us alone."""
        with tempfile.TemporaryFile() as answer:
            command = services.seed_demo(benchecho_url)
            run_to_end(command, seconds=SEED_SECONDS, pause=self._signals.pause, stdout=answer)
            answer.seek(0)
            return dict(json.load(answer))

    def _start_services(self, services: Services, listening_fd: int) -> None:
        """Start them all at once, then wait for each to say that it is at work."""
        say("Starting gateway, worker and beat …")
        numbers = range(1, self._options.workers + 1)
        wanted = [services.gateway(number, listening_fd) for number in numbers]
        wanted += [services.worker(), services.beat()]
        launched = [(service, self._launch(service, self._services)) for service in wanted]
        for service, child in launched:
            self._wait_for(service.command.name, partial(_at_work, service, child))

    def _launch(self, service: Service, group: list[Kept]) -> Child:
        child = Child(service.command)
        child.start()
        self._keep(child, group)
        return child

    def _keep(self, child: Child, group: list[Kept]) -> None:
        group.append(Kept(child, say))
        self._write_down()

    def _wait_for(self, name: str, ask: Callable[[], Answer | None]) -> Answer:
        """Ask until there is an answer; raises StartError if a child ends or it takes too long."""
        deadline = time.monotonic() + READY_SECONDS
        while (answer := ask()) is None:
            for kept in (*self._foundations, *self._services):
                if not kept.child.is_running():
                    raise failure(kept.child)
            if time.monotonic() >= deadline:
                raise StartError(
                    f"{name} did not answer within {READY_SECONDS:.0f} s (see {self._var.logs})."
                )
            self._signals.pause(POLL_SECONDS)
        return answer

    def _write_down(self) -> None:
        """Note who our children are now, for the next run and, once ready, for programs."""
        children = [kept.child for kept in (*self._foundations, *self._services)]
        self._var.record(children)
        if self._ready is not None:
            pids = {child.command.name: child.pid for child in children}
            self._var.write(self._var.ready.name, {**self._ready, "pids": pids})


def listen(port: int) -> socket.socket:
    """The one socket that all gateway processes accept from; it outlives each of them."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"Port {port} on {LOOPBACK} is taken: choose another one with PORT."
            ) from error
        raise StartError(f"Port {port} on {LOOPBACK} cannot be used: {error.strerror}.") from error
    return listener


def _at_work(service: Service, child: Child) -> bool | None:
    return True if service.ready_words in child.output() else None
