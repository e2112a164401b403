"""What a check found: passed, failed, or undecided with the reason why."""

from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """`passed` is None where nothing was learnt, which is no failure. `observed` are our figures.

    `reason` says why it did not pass; it is empty where it did.
    """

    passed: bool | None
    reason: str = ""
    observed: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A finding with what was sent and what came back, each None where nothing was or did."""

    finding: Finding
    request: JsonObject | None
    response: Any = None


PASSED = Finding(passed=True)


def failed(reason: str, **observed: Any) -> Finding:
    return Finding(passed=False, reason=reason, observed=observed)


def undecided(reason: str, **observed: Any) -> Finding:
    return Finding(passed=None, reason=reason, observed=observed)
