"""What an apply does, in words: one line a change, secrets never among them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from billing.money import text_from_nanos

ADDED: Final = "+"
CHANGED: Final = "~"
REMOVED: Final = "-"
MS_PER_SECOND: Final = 1000
BASIS_POINTS_PER_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class Change:
    """`sign` is ADDED, CHANGED or REMOVED."""

    sign: str
    subject: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        details = f": {', '.join(self.details)}" if self.details else ""
        return f"{self.sign} {self.subject}{details}"


@dataclass(slots=True)
class Diff:
    """`warnings` are true of the catalog as it is afterwards; they do not make it a change."""

    changes: list[Change] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, subject: str, *details: str) -> None:
        self.changes.append(Change(ADDED, subject, details))

    def change(self, subject: str, *details: str) -> None:
        self.changes.append(Change(CHANGED, subject, details))

    def remove(self, subject: str, *details: str) -> None:
        self.changes.append(Change(REMOVED, subject, details))

    def lines(self) -> Iterator[str]:
        """`+` added, `~` changed, `-` removed, `!` to look at; the last line is the summary."""
        yield from map(str, self.changes)
        yield from (f"! {warning}" for warning in self.warnings)
        yield self.summary

    @property
    def summary(self) -> str:
        if not self.changes:
            return "no changes"
        added, changed, removed = map(self.count, (ADDED, CHANGED, REMOVED))
        return f"{added} added, {changed} changed, {removed} removed"

    def count(self, sign: str) -> int:
        return sum(change.sign == sign for change in self.changes)


def price_text(nanos: int | None) -> str:
    """As in the file: 150_000_000 → `0.15`, 0 → `0`, None → `none`."""
    if nanos is None:
        return "none"
    text = text_from_nanos(nanos)
    return text.rstrip("0").rstrip(".")


def seconds_text(ms: int) -> str:
    """As in the file: 2_500 → `2.5`."""
    return f"{(Decimal(ms) / MS_PER_SECOND).normalize():f}"


def percent_text(basis_points: int) -> str:
    """As in the file: 1_025 → `10.25`."""
    return f"{(Decimal(basis_points) / BASIS_POINTS_PER_PERCENT).normalize():f}"


def moment_text(moment: datetime) -> str:
    """RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
