"""What a Farthing of `make run` tells the commands that are typed beside it.

`manage.py top_up …` in a second terminal should reach the running instance without a word. So
where the environment says nothing, the data folder (VAR, by default var/) is asked: ready.json
for the stores, secrets.json for the secrets. Elsewhere there is no such folder, and no default.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent

_STORES = {"DATABASE_URL": "database_url", "REDIS_URL": "redis_url"}
_SECRETS = {
    "FARTHING_SECRET_KEY": "secret_key",
    "FARTHING_KEY_PEPPER": "key_pepper",
    "FARTHING_FERNET_KEYS": "fernet_key",
}


def environment() -> Mapping[str, str]:
    """The process's environment, completed from the data folder where that can be read."""
    folder = Path(os.environ.get("VAR", PROJECT / "var"))
    found: dict[str, str] = {}
    for name, fields in (("ready.json", _STORES), ("secrets.json", _SECRETS)):
        if not fields.keys() <= os.environ.keys():
            kept = _read(folder / name)
            found |= {variable: kept[field] for variable, field in fields.items() if field in kept}
    return {**found, **os.environ}


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
