"""Our counting against bare tiktoken on the same text: `python bench/encode_throughput.py`.

Prints megabytes per second of processor time of both and their ratio for each vocabulary and kind
of text, and the time of `prompt_bound` for a new and for a repeated prompt of 4 kB. The two are
measured in turns, and the best of each counts, since other programs only ever slow a run down.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from billing.estimation import prompt_bound
from billing.estimation.bounds import bound
from billing.estimation.text import counter
from billing.estimation.vocabularies import VOCABULARIES, encoding

ROOT = Path(__file__).resolve().parent.parent
MEGABYTE = 1_000_000
ROUNDS = 15
BOUND_ROUNDS = 300
PROMPT_CHARS = 4_096


def filled(text: str) -> str:
    times = MEGABYTE // max(len(text.encode()), 1) + 1
    return (text * times).encode()[:MEGABYTE].decode("utf-8", "ignore")


def texts() -> dict[str, str]:
    prose = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "billing").rglob("*.py"))
    chinese = "我们今天去北京，看看长城。天气很好，大家都很高兴。"
    return {"English": filled(prose), "code": filled(code), "Chinese": filled(chinese)}


def best_seconds(*calls: Callable[[], object], rounds: int) -> list[float]:
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for index, call in enumerate(calls):
            started = time.thread_time()
            call()
            best[index] = min(best[index], time.thread_time() - started)
    return best


def bare_count(vocabulary: str, text: str) -> int:
    return len(encoding(VOCABULARIES[vocabulary].file).encode_ordinary(text))


def throughput() -> None:
    print("vocabulary     text      bare MB/s  ours MB/s  ratio")
    for name in VOCABULARIES:
        for kind, text in texts().items():
            bare, ours = partial(bare_count, name, text), partial(counter(name), text)
            seconds = best_seconds(bare, ours, rounds=ROUNDS)
            rates = [len(text.encode()) / MEGABYTE / each for each in seconds]
            print(
                f"{name:14} {kind:8} {rates[0]:10.1f} {rates[1]:10.1f} {rates[1] / rates[0]:6.2f}"
            )


def bound_of(request: dict[str, object]) -> int:
    return prompt_bound(request, model="gpt-4o")


def bound_of_new(request: dict[str, object]) -> int:
    bound("o200k_base").forget()
    return bound_of(request)


def bounds() -> None:
    print(f"\nprompt_bound of {PROMPT_CHARS} characters  new µs  repeated µs  bound / count")
    for kind, text in texts().items():
        request = {"messages": [{"role": "user", "content": text[:PROMPT_CHARS]}]}
        ratio = bound_of_new(request) / counter("o200k_base")(text[:PROMPT_CHARS])
        fresh, _ = best_seconds(partial(bound_of_new, request), partial(int), rounds=BOUND_ROUNDS)
        bound_of(request)
        again, _ = best_seconds(partial(bound_of, request), partial(int), rounds=BOUND_ROUNDS)
        print(f"{kind:32} {fresh * 1e6:8.1f} {again * 1e6:12.1f} {ratio:14.2f}")


if __name__ == "__main__":
    throughput()
    bounds()
