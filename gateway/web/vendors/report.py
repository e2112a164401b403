"""A stored report as a checklist with its evidence, masked and bounded as it was stored."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gateway.models import VendorCheck
from gateway.qualification.checks import CHECKS
from gateway.web.vendors.cards import VERDICTS

EVIDENCE_CHARACTERS = 20_000
ASKED = {
    "arithmetic": "what 2 + 2 is",
    "json": "one exact JSON object",
    "stream": "the same, as a stream",
    "include_usage": "a stream with its usage",
    "usage": "a line in several scripts; are the tokens what we count?",
    "tools": "a question with a function to call",
    "error_shape": "messages that are no list; is it refused with an error object?",
    "cancel": "a long answer that we leave; does the vendor stop?",
    "long_input": "a long prompt; is none of it cut?",
    "first_token": "a short stream; does its first piece come in time?",
}
REQUIRED = frozenset(check.id for check in CHECKS if check.is_required)


@dataclass(frozen=True, slots=True)
class Entry:
    """One check. Texts of what was sent and came back are empty where there is nothing."""

    id: str
    passed: bool | None
    reason: str
    sent: str
    came_back: str
    observed: str

    @property
    def state(self) -> str:
        return VERDICTS[self.passed]

    @property
    def word(self) -> str:
        return "Could not be probed" if self.passed is None else ""

    @property
    def asked(self) -> str:
        return ASKED.get(self.id, "")

    @property
    def is_required(self) -> bool:
        return self.id in REQUIRED


@dataclass(frozen=True, slots=True)
class ReportView:
    """A kept run. `is_elsewhere`: made at another address than the vendor's present one."""

    check: VendorCheck
    entries: tuple[Entry, ...]
    is_elsewhere: bool

    @property
    def state(self) -> str:
        return VERDICTS[self.check.passed]

    @property
    def took_ms(self) -> float:
        return (self.check.finished_at - self.check.started_at) / timedelta(milliseconds=1)

    @property
    def scope(self) -> str:
        return str(self.check.report.get("scope", ""))

    @property
    def runtime(self) -> str:
        return str(self.check.report.get("runtime", ""))

    @property
    def tally(self) -> str:
        """How many of its checks ended how."""
        states = [entry.passed for entry in self.entries]
        words = ((True, "passed"), (False, "failed"), (None, "could not be probed"))
        return ", ".join(f"{states.count(s)} {word}" for s, word in words if s in states)


def report_view(check: VendorCheck) -> ReportView:
    """Of a check that comes with its vendor."""
    entries = check.report.get("checks", [])
    return ReportView(check, tuple(_entries(entries)), check.base_url != check.vendor.base_url)


def _entries(entries: Iterable[dict[str, Any]]) -> Iterable[Entry]:
    for entry in entries:
        yield Entry(
            id=str(entry.get("id", "")),
            passed=entry.get("passed"),
            reason=str(entry.get("reason", "")),
            sent=_shown(entry.get("request")),
            came_back=_shown(entry.get("response")),
            observed=_shown(entry.get("observed")),
        )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    is_text = isinstance(value, str)
    text = value if is_text else json.dumps(value, indent=2, ensure_ascii=False)
    rest = len(text) - EVIDENCE_CHARACTERS
    return text if rest <= 0 else f"{text[:EVIDENCE_CHARACTERS]}\n… and {rest:,} more characters"
