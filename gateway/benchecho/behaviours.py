"""What each model name makes benchecho do."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_CHUNKS: Final = 100_000
MAX_DELAY_MS: Final = 600_000


class Usage(Enum):
    """What the vendor says of its tokens."""

    TRUE = "true"
    ZERO = "zero"
    NONE = "none"


class Output(Enum):
    """What the answer is made of."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL_CALL = "tool call"
    STRUCTURED = "JSON that fits the schema asked for"


class Fault(Enum):
    """How the answer goes wrong."""

    JSON_AS_STREAM = "one JSON body labelled text/event-stream"
    CUT = "the connection ends in mid-answer"
    NO_DONE = "the stream ends in order, without [DONE]"
    NEVER = "no byte, ever"
    ERROR_200 = "an error object with status 200"
    REFUSED_401 = "credential refused"
    LIMITED_429 = "too many requests"
    BROKEN_500 = "an HTML page with status 500"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`repetitions` of the phrase make the answer; each is one chunk of a stream."""

    usage: Usage = Usage.TRUE
    output: Output = Output.TEXT
    fault: Fault | None = None
    repetitions: int = 8
    chunk_delay_ms: int = 0
    first_byte_delay_ms: int = 0


NAMED: Final[dict[str, Behaviour]] = {
    "echo": Behaviour(),
    "echo-no-usage": Behaviour(usage=Usage.NONE),
    "echo-zero-usage": Behaviour(usage=Usage.ZERO),
    "echo-json-as-stream": Behaviour(usage=Usage.NONE, fault=Fault.JSON_AS_STREAM),
    "echo-json-as-stream-zero-usage": Behaviour(usage=Usage.ZERO, fault=Fault.JSON_AS_STREAM),
    "echo-tools": Behaviour(output=Output.TOOL_CALL),
    "echo-structured": Behaviour(output=Output.STRUCTURED),
    "echo-reasoning": Behaviour(output=Output.REASONING),
    "echo-cut": Behaviour(fault=Fault.CUT),
    "echo-no-done": Behaviour(fault=Fault.NO_DONE),
    "echo-never": Behaviour(fault=Fault.NEVER),
    "echo-error-200": Behaviour(fault=Fault.ERROR_200),
    "echo-401": Behaviour(fault=Fault.REFUSED_401),
    "echo-429": Behaviour(fault=Fault.LIMITED_429),
    "echo-500": Behaviour(fault=Fault.BROKEN_500),
}
# Any numbers do; these stand for them in the list of models.
EXAMPLES: Final = ("echo-chunks-50-10", "echo-slow-200")

_CHUNKS: Final = re.compile(r"echo-chunks-([1-9][0-9]{0,5})-([0-9]{1,6})")
_SLOW: Final = re.compile(r"echo-slow-([0-9]{1,6})")


def behaviour_of(model: str) -> Behaviour | None:
    """None for a model that benchecho does not have, numbers beyond the bounds included."""
    if (named := NAMED.get(model)) is not None:
        return named
    if match := _CHUNKS.fullmatch(model):
        chunks, delay_ms = int(match[1]), int(match[2])
        if chunks <= MAX_CHUNKS and delay_ms <= MAX_DELAY_MS:
            return Behaviour(repetitions=chunks, chunk_delay_ms=delay_ms)
    if (match := _SLOW.fullmatch(model)) and int(match[1]) <= MAX_DELAY_MS:
        return Behaviour(first_byte_delay_ms=int(match[1]))
    return None
