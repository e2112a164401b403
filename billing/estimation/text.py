"""How many tokens a text has in a vocabulary: exact, total, and bounded in time and memory."""

import re
from collections.abc import Iterator
from typing import Protocol

import tiktoken

from billing.estimation.vocabularies import VOCABULARIES, encoding

CHUNK_CHARS = 65_536
"""Longest text encoded at once: 35 ms at worst, and the pattern engine's stack overflows on runs
of a few million white characters."""
CUT_TRIES = 64


class Tally(Protocol):
    """Measures a text in tokens: exactly, or by an upper bound."""

    def __call__(self, text: str, /) -> int: ...


def chunks(text: str) -> Iterator[str]:
    """Cuts a long text where no token can cross: before a space after something that is none.

    A window without such a place is cut at its end, which may add a token.
    """
    start = 0
    while len(text) - start > CHUNK_CHARS:
        cut = _cut(text, start, start + CHUNK_CHARS)
        yield text[start:cut]
        start = cut
    yield text[start:]


def _cut(text: str, start: int, end: int) -> int:
    place = end
    for _ in range(CUT_TRIES):
        place = text.rfind(" ", start + 1, place)
        if place < 0:
            break
        if not text[place - 1].isspace():
            return place
    return end


class TextCounter:
    """Exact token counts of one vocabulary.

    Lone surrogates count as the replacement character that a server sees. Control tokens that the
    server recognises count as one token, others as the text they are; neither raises.
    """

    __slots__ = ("_encoding", "_opening", "_recognised")

    def __init__(self, encoding: tiktoken.Encoding, recognised: frozenset[str] | None) -> None:
        """Counts by `encoding`; `recognised` are its control tokens that a server obeys, or all."""
        self._encoding = encoding
        self._recognised = (
            frozenset(encoding.special_tokens_set) if recognised is None else recognised
        )
        self._opening = _opening(self._recognised)

    def __call__(self, text: str, /) -> int:
        if len(text) <= CHUNK_CHARS:
            return self._count(text)
        return sum(map(self._count, chunks(text)))

    def _count(self, text: str) -> int:
        if self._opening and self._opening.search(text):
            tokens = self._encoding.encode(
                text, allowed_special=self._recognised, disallowed_special=()
            )
            return len(tokens)
        return len(self._encoding.encode_ordinary(text))


def _opening(tokens: frozenset[str]) -> re.Pattern[str] | None:
    """Finds what may be a control token by its first two characters, much faster than all of it.

    Encoding with control tokens is a twentieth slower than without.
    """
    if not tokens:
        return None
    return re.compile("|".join(map(re.escape, sorted({token[:2] for token in tokens}))))


_counters: dict[str, TextCounter] = {}
"""One counter a vocabulary, for the process's life."""


def counter(vocabulary: str) -> TextCounter:
    """The vocabulary's counter. Two threads may build it twice; both are right."""
    found = _counters.get(vocabulary)
    if found is None:
        known = VOCABULARIES[vocabulary]
        found = _counters[vocabulary] = TextCounter(encoding(known.file), known.recognised)
    return found
