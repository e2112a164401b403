"""What one database of the benchmark holds before the first request."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Ground:
    """`extra_models` stand beside the three that every database has, all at the one vendor."""

    name: str
    vendor_url: str
    tenants: int = 10
    keys_per_tenant: int = 1
    extra_models: int = 0
    with_limited_keys: bool = False

    def text(self) -> str:
        return json.dumps(asdict(self))


def extra_models(count: int) -> list[str]:
    return [f"extra-{number:04d}" for number in range(count)]
