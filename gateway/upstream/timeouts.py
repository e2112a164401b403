"""The four bounds of a call, all explicit."""

import math
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds, each finite and above zero.

    `connect_s`: name, TCP and TLS together. `first_byte_s`: from the last progress in sending the
    request to the first byte of the body, since many vendors send the head of a stream at once
    and think afterwards. `idle_s`: silence within the body; time in which we hold the vendor back
    for a slow reader does not count. `total_s`: the whole call, waiting for a connection included.
    """

    connect_s: float
    first_byte_s: float
    idle_s: float
    total_s: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(bound) and bound > 0 for bound in astuple(self)):
            raise ValueError("time-outs are finite and above zero")
