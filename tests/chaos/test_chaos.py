"""Chaos for a minute, as `make chaos` makes it for ten: nothing is lost or charged twice."""

import os
import subprocess
import sys

import pytest

from tests.chaos.kills import CALM_S, KINDS, plan
from tests.stack import ROOT

SECONDS = 20.0


def test_a_seed_is_a_plan_and_every_kind_is_in_it() -> None:
    kills = plan(7, SECONDS)
    assert plan(7, SECONDS) == kills != plan(8, SECONDS)
    assert sorted(kill.kind for kill in kills) == sorted(KINDS)
    times = [kill.at_s for kill in kills]
    assert times == sorted(times)
    assert CALM_S <= times[0] <= times[-1] <= SECONDS - CALM_S
    assert len(plan(7, 600.0)) == 120


@pytest.mark.timeout(400)  # on a busy machine; a minute on a quiet one
def test_whatever_is_killed_every_exchange_is_resolved_once(tmp_path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.chaos"],
        cwd=ROOT,
        env={**os.environ, "SECONDS": str(SECONDS), "VAR": str(tmp_path / "chaos")},
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout[-6000:]}\n{run.stderr[-3000:]}"
    assert "every exchange resolved once" in run.stdout
