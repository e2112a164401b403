"""The guide and the kept reports say what the code does."""

import json
import re
from pathlib import Path

import pytest

import gateway
from gateway.qualification import authored, cost, standing
from gateway.qualification.bounds import DEFAULT_BOUNDS
from gateway.qualification.checks import CHECKS

DOCS = Path(gateway.__file__).parents[1] / "docs"


def test_guide_lists_the_checks_in_their_order():
    rows = re.findall(
        r"^\| (\*\*)?`(\w+)`(?:\*\*)? \|.*\|.*\|$", (DOCS / "vendors.md").read_text(), re.MULTILINE
    )
    assert [(name, bool(bold)) for bold, name in rows] == [
        (check.id, check.is_required) for check in CHECKS
    ]


def test_guide_states_the_bounds():
    guide = " ".join((DOCS / "vendors.md").read_text().split())
    for words in (
        f"{DEFAULT_BOUNDS.call_s:g} s, or its own",
        f"{DEFAULT_BOUNDS.run_s:g} s and {DEFAULT_BOUNDS.tokens:,} tokens",
        f"{cost.DAY_TOKENS:,} tokens in 24 hours",
        f"{authored.LONG_INPUT_WORDS:,} words",
        f"its last {standing.HISTORY_CHECKS} decided runs",
        f"The newest {standing.KEPT_CHECKS} runs",
    ):
        assert words in guide


@pytest.mark.parametrize(
    ("name", "failed", "undecided"),
    [("llama-cpp", set(), {"tools"}), ("mlx-lm", {"error_shape"}, {"tools", "cancel"})],
)
def test_kept_reports_are_of_these_checks(name, failed, undecided):
    report = json.loads((DOCS / "reports" / f"{name}.json").read_text())
    passed = {check["id"]: check["passed"] for check in report["checks"]}
    assert list(passed) == [check.id for check in CHECKS]
    assert {name for name, how in passed.items() if how is False} == failed
    assert {name for name, how in passed.items() if how is None} == undecided
    first, second, *_ = report["checks"]
    assert first["request"] == authored.plain(first["request"]["model"], authored.ARITHMETIC)
    figures = [
        (usage["prompt_tokens"], usage["completion_tokens"])
        for usage in (first["response"]["usage"], second["response"]["usage"])
    ]
    assert figures == [(21, 2), (34, 10)]
    assert report["owned_server_stopped"] is True
