"""How many answers a server is working on, as some servers show beside their API.

A client that leaves cannot see whether its vendor stops. These servers can be asked.
"""

import re
from collections.abc import Callable
from typing import Any, Final

Read = Callable[[Any], int | None]

# Prometheus names of "requests being answered now": vLLM, llama.cpp with metrics, SGLang, TGI.
_RUNNING: Final = re.compile(
    r"^(?:vllm:num_requests_running|llamacpp:requests_processing|sglang:num_running_reqs"
    r"|tgi_batch_current_size)(?:\{[^}]*\})?\s+([0-9]+(?:\.[0-9]+)?)\s*$",
    re.MULTILINE,
)


def _stats(value: Any) -> int | None:
    """Of benchecho's `/stats`: those that were asked for, less those that came to an end."""
    names = ("requests", "finished", "failed", "abandoned")
    if not isinstance(value, dict) or not all(isinstance(value.get(n), int) for n in names):
        return None
    requests, *ended = (value[name] for name in names)
    return int(requests - sum(ended))


def _slots(value: Any) -> int | None:
    """Of llama.cpp's `/slots`: a list of places for one answer each."""
    slots = value if isinstance(value, list) else []
    states = [slot.get("is_processing") for slot in slots if isinstance(slot, dict)]
    return sum(map(bool, states)) if states and None not in states else None


def _metrics(value: Any) -> int | None:
    found = _RUNNING.findall(value) if isinstance(value, str) else []
    return round(sum(map(float, found))) if found else None


GAUGES: Final[tuple[tuple[str, Read], ...]] = (
    ("/slots", _slots),
    ("/metrics", _metrics),
    ("/stats", _stats),
)
