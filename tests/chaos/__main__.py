"""``python -m tests.chaos``: what `make chaos` runs. SECONDS=600, SEED, VAR from the environment.

Clients of the official SDK ask for every fault of benchecho while gateways, scribes, Celery,
Valkey and PostgreSQL are killed with `kill -9` and started again by the supervisor. Then the books
are reckoned with what the vendor says that it has produced. Exits 1 where anything differs.
"""

import os
import secrets
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from tests.chaos.ground import Ground
from tests.chaos.kills import Killer, Recoveries, plan
from tests.chaos.reckoning import Books, reckon
from tests.chaos.traffic import Traffic

SETTLE_SECONDS = 120.0
POLL_S = 0.25
BALANCE_NANOS = 50 * 10**9
UNSETTLED = """
SELECT (SELECT count(*) FROM billing_exchange WHERE state <> 'settled')
     + (SELECT count(*) FROM billing_estimatejob)
     + (SELECT count(*) FROM billing_latesettlement WHERE corrected_at IS NULL)
"""


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main() -> int:
    seconds = float(os.environ.get("SECONDS") or "600")
    seed = int(os.environ.get("SEED") or secrets.randbelow(2**31))
    var = Path(os.environ.get("VAR") or tempfile.mkdtemp(prefix="farthing-chaos-"))
    kept = "VAR" in os.environ
    ground = Ground(var.absolute())
    say(f"seed {seed}, {seconds:.0f} s, in {var}")
    begun_s = time.monotonic()
    try:
        ground.start()
        say(f"started after {time.monotonic() - begun_s:.1f} s")
        books, killer, settled_s = run(ground, seed, seconds)
    finally:
        ground.stop()
    tell(seed, books, killer, settled_s)
    is_sound = not books.faults and not killer.recoveries.missing
    if is_sound and not kept:
        shutil.rmtree(var, ignore_errors=True)
    return 0 if is_sound else 1


def run(ground: Ground, seed: int, seconds: float) -> tuple[Books, Killer, float]:
    from django.db import connections

    traffic = Traffic(ground, seed, tenants())
    killer = Killer(ground, plan(seed, seconds), probe_secret())
    traffic.start()
    try:
        begun_s = time.monotonic()
        killer.run()
        time.sleep(max(0.0, begun_s + seconds - time.monotonic()))
    finally:
        traffic.stop()
        killer.finish()
    say(f"{time.monotonic() - begun_s:.1f} s of traffic and its end; settling …")
    settled_s = settle(ground)
    connections.close_all()  # PostgreSQL was killed under them
    return reckon(ground.journal, traffic.asked), killer, settled_s


def settle(ground: Ground) -> float:
    """Wait until nothing is on its way any more; how long that took. The books say what is left."""
    begun_s = time.monotonic()
    spool = ground.var / "spool"
    while time.monotonic() - begun_s < SETTLE_SECONDS:
        if ground.count(UNSETTLED) == 0 and not list(spool.glob("*.json")):
            break
        time.sleep(POLL_S)
    return time.monotonic() - begun_s


def tenants() -> list[str]:
    """Four of different kinds: their own money, a spend limit, promotional credit, on account."""
    from django.utils import timezone

    from billing.credits import grant_credit
    from billing.limits import set_limit
    from billing.models import LimitPeriod
    from billing.wallets import open_wallet, set_credit_limit, top_up
    from keys.services import create_key, create_tenant

    found = []
    for name in ("prepaid", "limited", "credited", "postpaid"):
        tenant = create_tenant(name, f"chaos-{name}", actor="chaos")
        open_wallet(tenant)
        if name == "postpaid":
            set_credit_limit(tenant, BALANCE_NANOS, actor="chaos", reason="on account")
        else:
            top_up(tenant, BALANCE_NANOS, payment_id=f"chaos-{name}", actor="chaos")
        if name == "limited":
            set_limit(tenant, LimitPeriod.DAY, BALANCE_NANOS, actor="chaos")
        if name == "credited":
            grant_credit(
                tenant,
                BALANCE_NANOS // 5_000,
                grant_id="chaos",
                expires_at=timezone.now() + timedelta(days=1),
                actor="chaos",
            )
        found.append(create_key(tenant, "chaos", actor="chaos").secret)
    return found


def probe_secret() -> str:
    from billing.wallets import open_wallet, top_up
    from keys.services import create_key, create_tenant

    tenant = create_tenant("probe", "chaos-probe", actor="chaos")
    open_wallet(tenant)
    top_up(tenant, BALANCE_NANOS, payment_id="chaos-probe", actor="chaos")
    return create_key(tenant, "probe", actor="chaos").secret


def tell(seed: int, books: Books, killer: Killer, settled_s: float) -> None:
    for name, figure in books.figures.items():
        say(f"{name:<24}{figure}")
    say(f"{'kills':<24}{dict(Counter(killer.done))}")
    say(f"{'settled after the end':<24}{settled_s:.1f} s")
    say("seconds from a kill, median and longest")
    for line in _recovery_lines(killer.recoveries):
        say(line)
    for line in (*books.lines(), *killer.recoveries.missing):
        say(line)
    say(f"seed {seed}: {'a fault was found' if books.faults else 'every exchange resolved once'}")


def _recovery_lines(recoveries: Recoveries) -> list[str]:
    return [
        f"  {kind:<10} served again {_median_and_longest(served)},"
        f" all as before {_median_and_longest(recoveries.whole.get(kind, []))}"
        for kind, served in sorted(recoveries.served.items())
    ]


def _median_and_longest(found: list[float]) -> str:
    return f"{statistics.median(found):.1f} {max(found):.1f}" if found else "-"


if __name__ == "__main__":
    sys.exit(main())
