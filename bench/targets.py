"""What is measured: programs that answer chat completions on a loopback port."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import wire

KINDS = {  # model, whether it streams
    "plain": (wire.FAST, False),
    "stream": (wire.FAST, True),
    "paced": (wire.PACED, True),
    "slow": (wire.SLOW, True),
    "held": (wire.HELD, True),
}


@dataclass(frozen=True, slots=True)
class Target:
    """`pid` None: the vendor itself, whose CPU is nobody's business. `files` by kind of request."""

    row: str
    title: str
    port: int
    pid: int | None
    files: dict[str, Path] = field(repr=False)

    @property
    def is_ours(self) -> bool:
        return self.row.startswith("farthing")


def make_target(
    folder: Path,
    row: str,
    title: str,
    where: tuple[int | None, int],
    keys: Sequence[str],
    *,
    models: Sequence[str] = (),
    headers: dict[str, str] | None = None,
) -> Target:
    """Write its requests: one for each key, in turn over `models` where more than one is asked."""
    pid, port = where
    many = max(len(keys), len(models))
    files = {}
    for kind, (model, streams) in KINDS.items():
        asked = models if models and kind == "plain" else (model,)
        requests = (
            wire.request(
                keys[number % len(keys)],
                wire.body(asked[number % len(asked)], stream=streams),
                headers or {},
            )
            for number in range(many)
        )
        files[kind] = wire.write(folder / f"{row}.{kind}.requests", requests)
    return Target(row, title, port, pid, files)
