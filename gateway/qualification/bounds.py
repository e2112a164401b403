"""What one check may cost, in time, tokens and memory."""

from dataclasses import dataclass
from typing import Final

MAX_ANSWER_BYTES: Final = 1024 * 1024
MAX_REASON_CHARACTERS: Final = 500
MAX_TEXT_CHARACTERS: Final = 2_000  # of one text in a report
MAX_EVENTS_KEPT: Final = 12  # of a stream, in a report: the first and the last ones


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one run over one model.

    `call_s` bounds each silence of the vendor, `run_s` everything. `tokens` are prompt and answer
    together, at the vendor's count.
    """

    call_s: float = 30.0
    run_s: float = 150.0
    stop_s: float = 5.0  # in which a vendor must have stopped after we have left
    first_token_ms: int = 10_000
    tokens: int = 12_000


DEFAULT_BOUNDS: Final = Bounds()
