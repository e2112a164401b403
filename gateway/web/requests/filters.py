"""What a list of requests is asked for, read from its address and written into others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self
from urllib.parse import urlencode

from gateway.exchanges.selectors import (
    AT_ESTIMATE,
    CLIENT_LEFT,
    ESTIMATING,
    FAILED,
    OPEN,
    REFUSED,
    SETTLED,
    ExchangeFilters,
)
from gateway.web.periods import CUSTOM, NAMES, TODAY, Period, period_of

STREAM = "stream"
WHOLE = "whole"
STATUS_WORDS = {
    OPEN: "Open",
    ESTIMATING: "Estimating",
    SETTLED: "Settled",
    AT_ESTIMATE: "At estimate",
    REFUSED: "Refused",
    FAILED: "Failed",
    CLIENT_LEFT: "Client left",
}
STREAM_WORDS = {STREAM: "Stream", WHOLE: "Whole"}
TEXT_CHARS = 256


@dataclass(frozen=True, slots=True)
class Asked:
    """Empty texts narrow nothing. What an address says beyond what there is counts as empty."""

    period: Period
    model: str = ""
    key: str = ""
    status: str = ""
    stream: str = ""
    errors_only: bool = False
    estimates_only: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str], now: datetime) -> Self:
        return cls(
            period=period_of(
                query.get("period", TODAY), now, query.get("since", ""), query.get("until", "")
            ),
            model=_text(query, "model"),
            key=_text(query, "key"),
            status=_one_of(query, "status", STATUS_WORDS),
            stream=_one_of(query, "stream", STREAM_WORDS),
            errors_only=query.get("errors") == "1",
            estimates_only=query.get("estimates") == "1",
        )

    def filters(self, *, is_test: bool) -> ExchangeFilters:
        return ExchangeFilters(
            is_test=is_test,
            model=self.model or None,
            key_public_id=self.key or None,
            status=self.status or None,
            is_stream={STREAM: True, WHOLE: False}.get(self.stream),
            errors_only=self.errors_only,
            estimates_only=self.estimates_only,
            since=self.period.since,
            until=self.period.until,
        )

    def parameters(self) -> dict[str, str]:
        """What an address needs to say the same."""
        said = {
            "period": self.period.name if self.period.name != TODAY else "",
            "model": self.model,
            "key": self.key,
            "status": self.status,
            "stream": self.stream,
            "errors": "1" if self.errors_only else "",
            "estimates": "1" if self.estimates_only else "",
        }
        if self.period.name == CUSTOM:
            said["since"] = self.period.since.date().isoformat()
            said["until"] = self.period.last_day.isoformat()
        return {name: value for name, value in said.items() if value}

    def url(self, base: str, **more: str) -> str:
        query = urlencode({**self.parameters(), **more})
        return f"{base}?{query}" if query else base

    def but(self, **changes: Any) -> "Asked":
        return replace(self, **changes)

    def cleared(self) -> "Asked":
        """The period alone."""
        return Asked(self.period)

    @property
    def is_narrowed(self) -> bool:
        return self != self.cleared()


@dataclass(frozen=True, slots=True)
class Choice:
    label: str
    url: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class Menu:
    """A chip with what can be chosen: `value` is empty for any."""

    label: str
    value: str
    choices: tuple[Choice, ...]


def period_choices(asked: Asked, base: str, now: datetime) -> tuple[Choice, ...]:
    return tuple(
        Choice(
            label,
            asked.but(period=period_of(name, now)).url(base),
            is_current=name == asked.period.name,
        )
        for name, label in NAMES.items()
    )


def menus(
    asked: Asked, base: str, *, models: Mapping[str, str], keys: Mapping[str, str]
) -> tuple[Menu, ...]:
    """The four chips. `models` and `keys` are the words of each value that can be chosen."""

    def menu(label: str, field: str, words: Mapping[str, str]) -> Menu:
        current: str = getattr(asked, field)
        choices = _choices(asked, base, field, words, current)
        return Menu(label, words.get(current, current), tuple(choices))

    return (
        menu("Model", "model", models),
        menu("Key", "key", keys),
        menu("Status", "status", STATUS_WORDS),
        menu("Stream", "stream", STREAM_WORDS),
    )


def _choices(
    asked: Asked, base: str, field: str, words: Mapping[str, str], current: str
) -> Iterator[Choice]:
    for value, word in {"": "any", **words}.items():
        yield Choice(word, asked.but(**{field: value}).url(base), is_current=value == current)


def _text(query: Mapping[str, str], name: str) -> str:
    """PostgreSQL takes no NUL, and no name is that long."""
    value = query.get(name, "")
    return value if len(value) <= TEXT_CHARS and "\x00" not in value else ""


def _one_of(query: Mapping[str, str], name: str, known: Mapping[str, str]) -> str:
    value = query.get(name, "")
    return value if value in known else ""
