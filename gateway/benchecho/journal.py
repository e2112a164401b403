"""What benchecho says that it did, a line a completion, for those who check a gateway's books.

Off unless `BENCHECHO_JOURNAL` names a file. A line is one JSON object, written when the completion
is over, however it ended: `user` as the request had it (a mark by which to find it again),
`model`, `is_stream`, `is_finished`, and the tokens by benchecho's own rule. `completion_tokens` are
those that it had handed out by then, also where the client left in the middle.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from gateway.benchecho import answers
from gateway.benchecho.answers import ChatRequest

VARIABLE: Final = "BENCHECHO_JOURNAL"


@dataclass(slots=True)
class Progress:
    """How much of an answer was handed out."""

    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Journal:
    path: Path | None

    def note(self, request: ChatRequest, progress: Progress, *, is_finished: bool) -> None:
        if self.path is None:
            return
        line = {
            "user": request.user,
            "model": request.model,
            "is_stream": request.is_stream,
            "is_finished": is_finished,
            "prompt_tokens": answers.count_prompt_tokens(request.messages),
            "completion_tokens": progress.completion_tokens,
        }
        with self.path.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")


NO_JOURNAL: Final = Journal(None)


def journal_of_environment() -> Journal:
    name = os.environ.get(VARIABLE)
    return Journal(Path(name) if name else None)
