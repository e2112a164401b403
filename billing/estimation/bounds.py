"""A cheap upper bound of a text's tokens, for holds: never below the exact count.

A pattern of a vocabulary never joins a word with the space after it, so a text with single spaces
is the sum of its words, each with the space before it. Words repeat: their counts are kept. White
runs are looked up likewise. What is too long to keep, and what is new beyond a budget, is worth its
bytes, since a token has at least one. Counts are by parts of the vocabulary, themselves bounds.
"""

import re
from collections.abc import Container, Iterable
from functools import cache

from billing.estimation.parts import PartCounter, parts_of
from billing.estimation.text import Tally, chunks
from billing.estimation.vocabularies import VOCABULARIES

MAX_WORD_CHARS = 48
MAX_WORDS = 65_536
"""Of one vocabulary, about 8 MB. A full table is emptied."""
MAX_TEXTS = 8_192
EXACT_TEXT_CHARS = 64
"""Shorter texts with unusual white space are simply counted."""
MIN_TEXT_CHARS = 256
"""Shorter texts are summed faster than found."""
MAX_WHITE_RUN_CHARS = 512
NEW_WORDS_PER_CALL = 256
"""Words encoded on first sight, about 1 µs each."""
EXACT_BYTES_PER_CALL = 16_384
"""Of words too long to keep, such as a Chinese sentence, that are encoded: about 2 ms."""
RECOUNTED_CHARS_PER_CALL = 16_384
"""Of texts that were worth their bytes and come again, encoded once: about 1 ms. History
and tools come with every request of a conversation."""

WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"  # fmt: skip # noqa: E501
"""Unicode White_Space, what `\\s` means to the vocabularies' patterns; not `str.isspace`."""
_NEWLINE = "\r\n"
_SPACE_RUN = re.compile("  +")
_WHITE_RUN = re.compile(f"[{WHITE}]{{2,}}")
_ORDINARY_RUN = re.compile(f"(?:[{WHITE.replace(' ', '')}]*[\r\n])?( +)")
_ENDED_WORD = re.compile(r"([^\W\d_]+)([!-/:-@\[-`{-~\r\n]+)")
"""Letters, and what no pattern takes into their piece unless more letters follow."""

_SPACES = 1 << 32
_UNUSUAL = 1 << 50
"""Added to a word's count where several spaces, or other white space than one space or newlines,
are beside it: above any count, so that one comparison of the sum finds them."""


class WordCounts(dict[str, int]):
    """Tokens of each word with the space before it, in one vocabulary.

    An entry never changes, so it never expires; the table is emptied when full. The budgets are
    set by each call; threads that share them only spend them sooner.
    """

    __slots__ = ("count", "exact_bytes", "loose", "new_words", "recounted_chars", "whole_words")

    def __init__(self, count: Tally, whole_words: Container[str] = ()) -> None:
        super().__init__()
        self.count = count
        self.whole_words = whole_words
        self.start()

    def start(self) -> None:
        self.new_words = NEW_WORDS_PER_CALL
        self.exact_bytes = EXACT_BYTES_PER_CALL
        self.recounted_chars = RECOUNTED_CHARS_PER_CALL
        self.loose = False

    def __missing__(self, word: str) -> int:
        if len(word) > MAX_WORD_CHARS:
            return self.worth(word, self.take_bytes(word))
        if self.new_words <= 0:
            return self.worth(word, exact=False)
        self.new_words -= 1
        if len(self) >= MAX_WORDS:
            self.clear()
        tokens = self[word] = self.worth(word, exact=True)
        return tokens

    def take_bytes(self, word: str) -> bool:
        size = _size(word) if len(word) <= self.exact_bytes else self.exact_bytes + 1
        if size > self.exact_bytes:
            return False
        self.exact_bytes -= size
        return True

    def worth(self, word: str, exact: bool) -> int:
        """The tokens of a word after a space, marked for the white space beside it."""
        core = word.lstrip(WHITE)
        mark = 0 if core is word and word[-1:] not in _NOT_NEWLINE else _UNUSUAL
        if not core:
            return _UNUSUAL if word else _SPACES
        if not exact:
            self.loose = True
            return mark + 1 + _size(word)
        if core is word:
            return mark + self._after_space(word)
        # The last white character may belong to the word, or to the run before it.
        before = word[len(word) - len(core) - 1]
        return mark + max(self.count(core), self.count(before + core))

    def _after_space(self, word: str) -> int:
        if word in self.whole_words:
            return 1
        ended = _ENDED_WORD.fullmatch(word)
        if ended is not None and ended[1] in self.whole_words:
            return 1 + self.count(ended[2])
        return self.count(" " + word)


_NOT_NEWLINE = "".join(set(WHITE) - set(_NEWLINE))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


class WhiteCounts(dict[str, int]):
    """What a run of white space adds to its words, which count a newline or space of it."""

    __slots__ = ("count",)

    def __init__(self, count: Tally) -> None:
        super().__init__()
        self.count = count

    def __missing__(self, run: str) -> int:
        if " " not in run:
            return 0
        if len(run) > MAX_WHITE_RUN_CHARS:
            return _size(run)
        if len(self) >= MAX_TEXTS:
            self.clear()
        ordinary = _ORDINARY_RUN.fullmatch(run)
        tokens = self[run] = self.count(ordinary[1][1:]) if ordinary else _size(run)
        return tokens


class TextBound:
    """Upper bounds of one vocabulary's counts."""

    __slots__ = ("_firsts", "_loose", "_texts", "_white", "_words")

    def __init__(self, count: Tally, whole_words: Container[str] = ()) -> None:
        """Counts by `count`, itself exact or a bound; `whole_words` are one token each."""
        self._words = WordCounts(count, whole_words)
        self._texts: dict[tuple[int, int], int] = {}
        self._loose: set[tuple[int, int]] = set()
        self._white = WhiteCounts(count)
        self._firsts: dict[str, int] = {}

    def learn(self, words: Iterable[str]) -> None:
        """Takes whole words into the table before they are met."""
        self._words.update(dict.fromkeys(words, 1))

    def forget(self) -> None:
        """Drops what is known of whole texts, not of words."""
        self._texts.clear()
        self._loose.clear()

    def start(self) -> None:
        """Renews the budgets: once a prompt, so that many messages cost no more than one."""
        self._words.start()

    def __call__(self, text: str, /) -> int:
        if len(text) < MIN_TEXT_CHARS:
            return self._chunk(text)
        # Python hashes text with a secret of the process: the text itself need not be kept.
        key = (hash(text), len(text))
        known = self._texts.get(key)
        if known is not None:
            return known
        if key in self._loose and len(text) <= self._words.recounted_chars:
            self._words.recounted_chars -= len(text)
            return self._keep(key, self._words.count(text))
        self._words.loose = False
        tokens = sum(map(self._chunk, chunks(text)))
        if not self._words.loose:
            return self._keep(key, tokens)
        if len(self._loose) >= MAX_TEXTS:
            self._loose.clear()
        self._loose.add(key)
        return tokens

    def _keep(self, key: tuple[int, int], tokens: int) -> int:
        if len(self._texts) >= MAX_TEXTS:
            self._texts.clear()
        self._texts[key] = tokens
        return tokens

    def _chunk(self, text: str) -> int:
        words = text.split(" ")
        tokens = self._first(words.pop(0)) + sum(map(self._words.__getitem__, words))
        if tokens < _SPACES:
            return tokens
        if len(text) <= EXACT_TEXT_CHARS:
            return self._words.count(text)
        runs = _SPACE_RUN if tokens < _UNUSUAL else _WHITE_RUN
        white = sum(map(self._white.__getitem__, runs.findall(text)))
        tail = len(text) - len(text.rstrip(WHITE))
        return tokens % _SPACES + white + (_size(text[-tail:]) if tail else 0)

    def _first(self, word: str) -> int:
        """The word that no space precedes."""
        known = self._firsts.get(word)
        if known is not None:
            return known
        if not word:
            return 0
        mark = _UNUSUAL if word[-1] in _NOT_NEWLINE else 0
        if len(word) > MAX_WORD_CHARS:
            exact = self._words.take_bytes(word)
            self._words.loose |= not exact
            return mark + (self._words.count(word) if exact else _size(word))
        if len(self._firsts) >= MAX_TEXTS:
            self._firsts.clear()
        tokens = self._firsts[word] = mark + self._words.count(word)
        return tokens


@cache
def bound(vocabulary: str) -> TextBound:
    """The vocabulary's bound, with its table of words, for the process's life."""
    known = VOCABULARIES[vocabulary]
    parts = parts_of(known.file)
    built = TextBound(PartCounter(known, parts), parts.whole_words)
    built.learn(parts.frequent)
    return built
