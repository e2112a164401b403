"""Small parts of a vocabulary whose counts are never below those of the whole.

Byte-pair encoding merges the pair of the lowest rank first. With all tokens up to some rank it does
exactly the first merges that the whole vocabulary would do, and the whole then goes on merging: so
any first part of a vocabulary counts at least as many tokens. The same holds for the first part of
those tokens that can occur in a text at all, as in one without ASCII letters.

A whole vocabulary takes a gateway 50 to 95 MB, these parts a fifth to a half of that.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import regex  # type: ignore[import-untyped]  # no stubs
import tiktoken

from billing.estimation.text import TextCounter
from billing.estimation.vocabularies import (
    Ranks,
    Specials,
    Vocabulary,
    VocabularyFile,
    read_checked,
)

FIRST_TOKENS = 32_000
"""Of any kind: about 9 MB."""
LETTERLESS_TOKENS = 40_000
"""Without ASCII letters, for scripts other than Latin: about 11 MB where there are so many."""
FREQUENT_TOKENS = 50_000
"""Whose words a table starts with: about 3 MB."""

_LETTER = re.compile("[A-Za-z]")
_LETTER_BYTE = re.compile(rb"[A-Za-z]")
_CUT = re.compile("(?<=[^\\W_])(?=[，。、；：！？])")
"""No pattern takes such a sign into the piece of the letter or number before it."""


class WholeWords:
    """The words that are one token, with the space before them, by hash: 8 bytes a word.

    Python hashes with a secret of the process; that a word is wrongly taken for one of a hundred
    thousand has a probability below 10⁻¹³.
    """

    __slots__ = ("_hashes",)

    def __init__(self, words: Iterable[str]) -> None:
        self._hashes = array("q", sorted(map(hash, words)))

    def __contains__(self, word: object) -> bool:
        hashed = hash(word)
        place = bisect_left(self._hashes, hashed)
        return place < len(self._hashes) and self._hashes[place] == hashed


class PartCounter:
    """An upper bound of a text's tokens: above the count by 1 to 30 % for common text."""

    __slots__ = ("_first", "_letterless")

    def __init__(self, vocabulary: Vocabulary, parts: "Parts") -> None:
        self._first = TextCounter(parts.first, vocabulary.recognised)
        self._letterless = TextCounter(parts.letterless, frozenset())

    def __call__(self, text: str, /) -> int:
        if text.isascii():
            return self._first(text)
        if _LETTER.search(text) is None:
            return self._letterless(text)
        return sum(map(self._segment, _CUT.split(text)))

    def _segment(self, text: str) -> int:
        return (self._first if _LETTER.search(text) else self._letterless)(text)


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of one file. `frequent` are the words that open its list, most frequent first."""

    first: tiktoken.Encoding
    letterless: tiktoken.Encoding
    whole_words: WholeWords
    frequent: tuple[str, ...]


@cache
def parts_of(file: VocabularyFile) -> Parts:
    """Builds the parts, in about half a second; kept for the process's life."""
    ranks, in_file = file.read(read_checked(file))
    first = _encoding(file, {t: r for t, r in ranks.items() if r < FIRST_TOKENS}, in_file)
    letterless = _encoding(file, _letterless(ranks), {})
    words = dict(_words(file, ranks))
    whole_words = WholeWords(words)
    frequent = "\n".join(word for word, rank in words.items() if rank < FREQUENT_TOKENS)
    del ranks, words  # what is kept of them is made only now, so that they leave no holes
    return Parts(first, letterless, whole_words, tuple(frequent.split("\n")))


def _letterless(ranks: Ranks) -> Ranks:
    tokens = [token for token in ranks if len(token) == 1 or not _LETTER_BYTE.search(token)]
    tokens.sort(key=ranks.__getitem__)
    # The bytes of letters come along, though no text will need them, and take no part's place.
    return {token: ranks[token] for token in tokens[:LETTERLESS_TOKENS]} | {
        token: rank for token, rank in ranks.items() if len(token) == 1
    }


def _encoding(file: VocabularyFile, ranks: Ranks, in_file: Specials) -> tiktoken.Encoding:
    special = {**in_file, **dict(file.special)} if in_file or file.special else {}
    built = tiktoken.Encoding(
        file.path, pat_str=file.pattern, mergeable_ranks=ranks, special_tokens=special
    )
    built._mergeable_ranks = {}  # noqa: SLF001  # its encoder has a copy; this takes as much again
    return built


def _words(file: VocabularyFile, ranks: Ranks) -> Iterator[tuple[str, int]]:
    """Words after a space that are one piece of the pattern and one token, with their ranks."""
    piece = regex.compile(file.pattern)
    for token, rank in ranks.items():
        if token[:1] != b" ":
            continue
        word = token[1:].decode("utf-8", "replace")
        if "\ufffd" in word or word.split() != [word]:
            continue
        found = piece.match(" " + word)
        if found is not None and found.end() == 1 + len(word):
            yield word, rank
