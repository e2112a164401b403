"""Clients: the official SDK as anybody uses it, asking for every fault, leaving, repeating."""

import random
import threading
from collections import Counter
from dataclasses import dataclass, field

import openai

from tests.chaos.ground import LONG_MODEL, Ground

# What is asked for, and how often.
MIX = {
    "farthing-echo": 30,
    "farthing-echo-no-usage": 10,
    "farthing-echo-zero-usage": 6,
    "farthing-echo-json-as-stream": 5,
    "farthing-echo-json-as-stream-zero-usage": 4,
    "farthing-echo-tools": 4,
    "farthing-echo-structured": 3,
    "farthing-echo-reasoning": 6,
    "farthing-echo-per-request": 4,
    "farthing-echo-chunks": 10,
    LONG_MODEL: 8,
    "farthing-echo-slow": 3,
    "farthing-echo-cut": 5,
    "farthing-echo-no-done": 4,
    "farthing-echo-401": 2,
    "farthing-echo-429": 1,
    "farthing-echo-500": 2,
    "farthing-echo-error-200": 2,
    "farthing-echo-never": 1,
    "farthing-echo-failover": 3,
}
STREAMED = 0.6
LEAVES = 0.15  # of streams
KEYED = 0.2
REPEATS = 4
REPEAT_PAUSE_S = 0.7
PAUSE_S = 0.05
TIMEOUT_S = 30.0
PATIENT = "farthing-echo-429"  # the SDK would wait for half a minute, as that vendor asks
WHOLE = "whole"
LEFT = "left"


@dataclass
class Asked:
    """One wish of a client, however often the SDK or the client itself had to repeat it."""

    mark: str
    model: str
    is_stream: bool
    is_keyed: bool
    outcome: str = ""
    texts: set[str] = field(default_factory=set)

    @property
    def is_whole(self) -> bool:
        return self.outcome == WHOLE


class Traffic:
    """One thread for each secret, until it is told to stop."""

    def __init__(self, ground: Ground, seed: int, secrets: list[str]) -> None:
        self._stop = threading.Event()
        self.asked: list[Asked] = []
        self.faults: Counter[str] = Counter()
        self._threads = [
            threading.Thread(
                target=self._run, args=(ground.base_url, random.Random(f"{seed}-{number}"), secret)
            )
            for number, secret in enumerate(secrets)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, base_url: str, chance: random.Random, secret: str) -> None:
        name = f"{chance.getrandbits(32):08x}"
        with openai.OpenAI(base_url=base_url, api_key=secret, timeout=TIMEOUT_S) as client:
            number = 0
            while not self._stop.is_set():
                number += 1
                (model,) = chance.choices(list(MIX), weights=list(MIX.values()))
                asked = Asked(
                    f"{name}-{number}", model, chance.random() < STREAMED, chance.random() < KEYED
                )
                leaves_after = 0
                if asked.is_stream and chance.random() < LEAVES:
                    leaves_after = chance.randint(1, 12)
                self.asked.append(asked)
                self._ask(client, asked, leaves_after)
                self._stop.wait(chance.random() * 2 * PAUSE_S)

    def _ask(self, client: openai.OpenAI, asked: Asked, leaves_after: int) -> None:
        for _ in range(REPEATS if asked.is_keyed else 1):
            asked.outcome = self._outcome(client, asked, leaves_after)
            if asked.outcome == WHOLE:
                return
            self.faults[asked.outcome] += 1
            if self._stop.wait(REPEAT_PAUSE_S if asked.is_keyed else 0):
                return

    def _outcome(self, client: openai.OpenAI, asked: Asked, leaves_after: int) -> str:
        try:
            text = _text(client, asked, leaves_after)
        except openai.APIStatusError as error:
            return str(error.status_code)
        except openai.APIConnectionError:
            return "no connection"
        except openai.APIError:
            return "error in the stream"
        except Exception as error:  # noqa: BLE001  # a connection cut in mid-body is the HTTP library's
            return type(error).__name__
        if text is None:
            return LEFT
        asked.texts.add(text)
        return WHOLE


def messages_of(mark: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Say hello to {mark}."}]


def _text(client: openai.OpenAI, asked: Asked, leaves_after: int) -> str | None:
    """All that was answered; None where we have left before its end."""
    headers = {"X-Client-Request-Id": asked.mark}
    if asked.is_keyed:
        headers["Idempotency-Key"] = asked.mark
    if asked.model == PATIENT:
        client = client.with_options(max_retries=0)
    answer = client.chat.completions.create(
        model=asked.model,
        messages=messages_of(asked.mark),
        stream=asked.is_stream,
        user=asked.mark,
        extra_headers=headers,
    )
    if not asked.is_stream:
        return answer.choices[0].message.model_dump_json(exclude_none=True)
    pieces, finish_reason = [], None
    for number, chunk in enumerate(answer, 1):
        if number == leaves_after:
            answer.close()
            return None
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            finish_reason = choice.finish_reason or finish_reason
    if finish_reason is None:
        raise EOFError  # the stream ended without its end
    return "".join(pieces)
