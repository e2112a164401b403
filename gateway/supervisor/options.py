"""What the environment may say to `make run`. The full list is in docs/configuration.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.supervisor.errors import StartError

DEFAULT_PORT = 8000
MAX_PORT = 65535
DEFAULT_WORKERS = 1
MAX_WORKERS = 64
DEFAULT_VAR = "var"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`port` 0 takes a free one; the two URLs are None where the embedded servers are wanted."""

    port: int
    workers: int
    var_dir: Path
    catalog: Path | None
    database_url: str | None
    redis_url: str | None


def read_options(environment: Mapping[str, str]) -> Options:
    """Raises StartError, naming the variable. An empty variable counts as none."""
    catalog = environment.get("CATALOG") or None
    options = Options(
        port=_whole_number(environment, "PORT", DEFAULT_PORT, 0, MAX_PORT),
        workers=_whole_number(environment, "WORKERS", DEFAULT_WORKERS, 1, MAX_WORKERS),
        var_dir=Path(environment.get("VAR") or DEFAULT_VAR).expanduser().absolute(),
        catalog=None if catalog is None else Path(catalog).expanduser().absolute(),
        database_url=environment.get("DATABASE_URL") or None,
        redis_url=environment.get("REDIS_URL") or None,
    )
    if options.catalog is not None and not options.catalog.is_file():
        raise StartError(f"CATALOG names {options.catalog}, and there is no such file.")
    return options


def _whole_number(
    environment: Mapping[str, str], name: str, default: int, lowest: int, highest: int
) -> int:
    text = environment.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or not lowest <= int(text) <= highest:
        raise StartError(f"{name} must be a number from {lowest} to {highest}, not {text!r}.")
    return int(text)
