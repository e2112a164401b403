"""Who is killed, when; and how long it takes until all is as before."""

import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

import openai
import psutil

from tests.chaos.ground import Ground
from tests.chaos.traffic import messages_of

KINDS = ("gateway", "scribe", "worker", "pool", "beat", "valkey", "postgres", "backend")
NAMES = {"worker": "worker", "beat": "beat", "valkey": "Valkey", "postgres": "PostgreSQL"}
CALM_S = 2.0  # at the beginning and at the end
EVERY_S = 5.0
RECOVER_SECONDS = 90.0
POLL_S = 0.05
PROBE_TIMEOUT_S = 5.0
SERVED, COUNTED = "farthing-echo", "farthing-echo-no-usage"


@dataclass(frozen=True)
class Kill:
    at_s: float
    kind: str
    which: float  # picks one where there are several


def plan(seed: int, seconds: float) -> list[Kill]:
    """Every kind once, in random order, then at random: the same for the same seed."""
    chance = random.Random(seed)
    count = max(len(KINDS), int(seconds / EVERY_S))
    kinds = chance.sample(KINDS, len(KINDS))
    kinds += chance.choices(KINDS, k=count - len(KINDS))
    step_s = (seconds - 2 * CALM_S) / count
    return [
        Kill(CALM_S + step_s * (number + chance.random() * 0.8), kind, chance.random())
        for number, kind in enumerate(kinds)
    ]


@dataclass
class Recoveries:
    """Seconds from each kill, by its kind: until served again, and until all was as before."""

    served: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    whole: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    missing: list[str] = field(default_factory=list)


class Killer:
    """Carries the plan out; each kill is watched by a thread of its own."""

    def __init__(self, ground: Ground, kills: list[Kill], secret: str) -> None:
        self._ground = ground
        self._kills = kills
        self._client = openai.OpenAI(
            base_url=ground.base_url, api_key=secret, max_retries=0, timeout=PROBE_TIMEOUT_S
        )
        self._pause = threading.Event()
        self._watching: list[threading.Thread] = []
        self.done: list[str] = []
        self.recoveries = Recoveries()

    def run(self) -> None:
        begun_s = time.monotonic()
        for number, kill in enumerate(self._kills):
            self._pause.wait(max(0.0, begun_s + kill.at_s - time.monotonic()))
            victim = self._victim(kill)
            if victim is None:
                continue  # it is down already
            victim.kill()
            self.done.append(kill.kind)
            watch = threading.Thread(
                target=self._watch, args=(kill.kind, victim.pid, f"probe-{number}")
            )
            watch.start()
            self._watching.append(watch)

    def finish(self) -> None:
        for watch in self._watching:
            watch.join()
        self._client.close()

    def _victim(self, kill: Kill) -> psutil.Process | None:
        if kill.kind in NAMES:
            return self._ground.process(NAMES[kill.kind])
        if kill.kind == "pool":
            return self._child_of("worker", "celery", kill.which)
        if kill.kind == "backend":
            return self._child_of("PostgreSQL", "farthing", kill.which)
        gateway = "gateway-1" if kill.which < 0.5 else "gateway-2"
        if kill.kind == "scribe":
            return self._child_of(gateway, "scribe", kill.which)
        return self._ground.process(gateway)

    def _child_of(self, name: str, words: str, which: float) -> psutil.Process | None:
        parent = self._ground.process(name)
        try:
            found = [
                child
                for child in ([] if parent is None else parent.children())
                if words in " ".join(child.cmdline())
            ]
        except psutil.NoSuchProcess:
            return None
        return found[int(which * len(found))] if found else None

    def _watch(self, kind: str, pid: int, mark: str) -> None:
        begun_s = time.monotonic()
        self._until(kind, self.recoveries.served, begun_s, lambda: self._is_served(SERVED, mark))
        if kind == "gateway":
            asked = self._nothing_is_left_of(pid)
        else:
            asked = self._an_estimate_is_settled(mark)
        self._until(kind, self.recoveries.whole, begun_s, asked)

    def _until(self, kind: str, into: dict[str, list[float]], begun_s: float, asked) -> None:
        while not asked():
            if time.monotonic() - begun_s > RECOVER_SECONDS:
                self.recoveries.missing.append(f"{kind}: not within {RECOVER_SECONDS:.0f} s")
                return
            self._pause.wait(POLL_S)
        into[kind].append(time.monotonic() - begun_s)

    def _is_served(self, model: str, mark: str) -> bool:
        headers = {"X-Client-Request-Id": mark}
        try:
            self._client.chat.completions.create(
                model=model, messages=messages_of(mark), user=mark, extra_headers=headers
            )
        except openai.APIError:
            return False
        return True

    def _an_estimate_is_settled(self, mark: str):
        """Celery, its broker and the database do their work again for what is asked from now on."""
        mark = f"{mark}-counted"
        is_asked = False

        def asked() -> bool:
            nonlocal is_asked
            is_asked = is_asked or self._is_served(COUNTED, mark)
            return is_asked and bool(
                self._ground.count(
                    "SELECT count(*) FROM billing_exchange e WHERE e.state = 'settled'"
                    " AND e.status_code = 200 AND e.client_request_id = %s",
                    mark,
                )
            )

        return asked

    def _nothing_is_left_of(self, pid: int):
        name = self._ground.name_of(pid)

        def asked() -> bool:
            return (
                self._ground.count(
                    "SELECT count(*) FROM billing_exchange e"
                    " JOIN billing_gatewayprocess p ON p.id = e.process_id"
                    " WHERE e.state <> 'settled' AND p.name = %s",
                    name,
                )
                == 0
            )

        return asked
