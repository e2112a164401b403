"""Versions by date: which an apply adds. A version is immutable: a change is a new version."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, Self, TypeVar

from gateway.catalog.diff import Diff, moment_text
from gateway.catalog.entries import Mistake


class Figures(Protocol):
    """What a version says; equal where it says the same."""

    def words(self) -> list[str]:
        """All that it says, as a file does."""

    def words_since(self, before: Self) -> list[str]:
        """What it says otherwise than the version before it."""


F = TypeVar("F", bound=Figures)


@dataclass(frozen=True, slots=True)
class Version(Generic[F]):
    """What is in force from a moment on, stored or about to be."""

    effective_from: datetime
    figures: F


@dataclass(frozen=True, slots=True)
class Given(Generic[F]):
    """A version as a file names it. `effective_from` None is "from now on, if not so already"."""

    line: int
    effective_from: datetime | None
    figures: F


@dataclass(frozen=True, slots=True)
class Subject:
    """What has versions: `noun` "price", `words` "price of m in USD"."""

    noun: str
    words: str


def in_force(versions: Iterable[Version[F]], moment: datetime) -> Version[F] | None:
    past = (version for version in versions if version.effective_from <= moment)
    return max(past, key=lambda version: version.effective_from, default=None)


def current_and_planned(versions: Sequence[Version[F]], now: datetime) -> list[Version[F]]:
    current = in_force(versions, now)
    planned = [version for version in versions if version.effective_from > now]
    return planned if current is None else [current, *planned]


class Timeline(Generic[F]):
    """One subject's versions: those stored, and those that the file adds."""

    def __init__(self, subject: Subject, stored: Sequence[Version[F]], now: datetime) -> None:
        self.subject = subject
        self.added: list[Version[F]] = []
        self._now = now
        self._stored = list(stored)
        self._named: set[datetime] = set()

    @property
    def all(self) -> list[Version[F]]:
        return [*self._stored, *self.added]

    def read(self, given: Iterable[Given[F]]) -> list[Mistake]:
        """In the order of time, so that each is compared with what is in force before it."""
        ordered = sorted(given, key=self._start_of)
        words = [(one, self._read_one(one)) for one in ordered]
        mistakes = [Mistake(one.line, text) for one, text in words if text]
        return mistakes or self._check_now(ordered)

    def tell(self, diff: Diff) -> None:
        """The versions that are added, and those that the file does not know and that stay."""
        for version in self.added:
            earlier = [v for v in self.all if v.effective_from < version.effective_from]
            before = in_force(earlier, version.effective_from)
            figures = version.figures
            diff.add(
                f"{self.subject.words} from {moment_text(version.effective_from)}",
                *(figures.words() if before is None else figures.words_since(before.figures)),
            )
        diff.warnings += [
            f"{self.subject.words} from {moment_text(version.effective_from)} is stored and not in "
            "the file: it stays"
            for version in self._stored
            if version.effective_from > self._now and version.effective_from not in self._named
        ]

    def _start_of(self, given: Given[F]) -> datetime:
        return given.effective_from or self._now

    def _read_one(self, given: Given[F]) -> str:
        """Take a version in; returns what is wrong with it, or nothing."""
        start = self._start_of(given)
        self._named.add(start)
        before = in_force(self.all, start)
        if before is not None and before.figures == given.figures:
            return ""
        stored = in_force(self._stored, start)
        if stored is not None and self._is_frozen(given, stored):
            return (
                f"the {self.subject.words} at {moment_text(start)} is {_listed(stored)}, and a "
                f"stored {self.subject.noun} never changes; expected the same numbers, a later "
                "effective_from, or none for from now on."
            )
        self.added.append(Version(start, given.figures))
        return ""

    def _is_frozen(self, given: Given[F], stored: Version[F]) -> bool:
        """A stored version stands at this very time, or was in force at a time that is past."""
        if stored.effective_from == self._start_of(given):
            return True
        return given.effective_from is not None and given.effective_from <= self._now

    def _check_now(self, ordered: Sequence[Given[F]]) -> list[Mistake]:
        """What the file says of today must be what is charged today."""
        current = in_force(self.all, self._now)
        past = [given for given in ordered if self._start_of(given) <= self._now]
        if not past or current is None or past[-1].figures == current.figures:
            return []
        return [
            Mistake(
                past[-1].line,
                f"since {moment_text(current.effective_from)} another {self.subject.words} is in "
                f"force: {_listed(current)}; expected that one too, or a {self.subject.noun} "
                "without effective_from to replace it from now on.",
            )
        ]


def _listed(version: Version[F]) -> str:
    return ", ".join(version.figures.words())
