from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.estimation.bounds import (
    EXACT_BYTES_PER_CALL,
    MAX_WHITE_RUN_CHARS,
    MAX_WORD_CHARS,
    RECOUNTED_CHARS_PER_CALL,
    WHITE,
    TextBound,
    bound,
)
from billing.estimation.text import CHUNK_CHARS, counter
from billing.estimation.vocabularies import VOCABULARIES, encoding
from tests.billing.estimation.texts import wild_text

NAMES = sorted(VOCABULARIES)


def check_bounds(text: str) -> None:
    for name in NAMES:
        upper = bound(name)
        upper.start()
        count = counter(name)(text)
        assert upper(text) >= count, name
        assert upper._chunk(text) >= count, name


@given(text=wild_text)
@settings(max_examples=40, deadline=None)
def test_a_bound_is_never_below_the_count(text: str) -> None:
    check_bounds(text)


@pytest.mark.long
@given(text=wild_text)
@settings(max_examples=5_000, deadline=None)
def test_a_bound_is_never_below_the_count_of_many(text: str) -> None:
    check_bounds(text)


@given(
    white=st.text(st.sampled_from(WHITE), max_size=12), around=st.sampled_from(["", "a", "1", "."])
)
@settings(max_examples=40, deadline=None)
def test_white_space_of_every_kind_is_never_below_the_count(white: str, around: str) -> None:
    text = f"{around}{white}{around} b {white}7"
    for name in NAMES:
        assert bound(name)._chunk(text) >= counter(name)(text), name


@pytest.mark.parametrize("name", NAMES)
def test_one_more_space_is_at_most_one_more_token(name: str) -> None:
    """What `_run` rests on where a digit follows: the vocabulary may take the last space too."""
    counts = [counter(name)(" " * length) for length in range(MAX_WHITE_RUN_CHARS + 1)]
    assert all(after <= before + 1 for before, after in pairwise(counts))


@pytest.mark.parametrize("name", NAMES)
def test_no_control_token_has_a_space(name: str) -> None:
    """What the sum of words rests on: a control token never joins two of them."""
    assert not [t for t in encoding(VOCABULARIES[name].file).special_tokens_set if " " in t]


def test_ordinary_text_of_known_words_is_exact() -> None:
    text = "The quick brown fox, it is said, jumps over the lazy dog. " * 40
    upper = bound("o200k_base")
    upper.start()
    upper(text)
    assert upper._chunk(text) - counter("o200k_base")(text) in range(3)


def test_indented_code_is_bounded_nearly() -> None:
    text = "def add(first, second):\n    total = first + second\n    return total\n\n\n" * 30
    upper = bound("o200k_base")
    upper.start()
    assert upper(text) <= 1.25 * counter("o200k_base")(text)


def test_what_is_new_beyond_the_budget_is_worth_its_bytes() -> None:
    upper = TextBound(counter("o200k_base"))
    words = [f"zq{number}xv" for number in range(400)]
    text = " ".join(words)
    first = upper(text)
    assert first > counter("o200k_base")(text)
    upper.start()
    upper(text)
    upper.start()
    assert upper(text) == counter("o200k_base")(text)


def test_a_text_worth_its_bytes_is_counted_when_it_comes_again() -> None:
    upper = TextBound(counter("o200k_base"))
    text = "我们今天去北京看看长城" * 600
    assert len(text.encode()) > EXACT_BYTES_PER_CALL
    assert upper(text) == len(text.encode())
    assert not upper._texts
    assert upper(text) == counter("o200k_base")(text)
    assert list(upper._texts.values()) == [counter("o200k_base")(text)]


def test_only_so_much_is_counted_again_in_one_call() -> None:
    upper = TextBound(counter("o200k_base"))
    text = "长城" * RECOUNTED_CHARS_PER_CALL
    assert upper(text) == upper(text) == len(text.encode())
    first, second = "长" * (RECOUNTED_CHARS_PER_CALL - 1), "城" * RECOUNTED_CHARS_PER_CALL
    assert upper(first) > upper(first)
    assert upper(second) == upper(second)
    upper.start()
    assert upper(second) < len(second.encode())


def test_a_long_word_is_exact_within_the_budget() -> None:
    upper = TextBound(counter("o200k_base"))
    word = "我们今天去北京看看长城" * 5
    assert len(word) > MAX_WORD_CHARS
    assert len(word.encode()) <= EXACT_BYTES_PER_CALL
    assert upper._chunk(word) == counter("o200k_base")(word)


def test_a_known_text_is_found_by_its_hash_and_not_kept() -> None:
    upper = TextBound(counter("o200k_base"))
    text = "one two three " * 100
    tokens = upper(text)
    assert list(upper._texts.values()) == [tokens]
    assert list(upper._texts) == [(hash(text), len(text))]


def test_many_chunks_are_never_below_the_count() -> None:
    text = "a  b\tc\n" * CHUNK_CHARS
    assert bound("o200k_base")(text) >= counter("o200k_base")(text)
