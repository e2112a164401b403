import time

import pytest
import tiktoken
from hypothesis import given, settings

from billing.estimation.text import CHUNK_CHARS, chunks, counter
from billing.estimation.vocabularies import VOCABULARIES, encoding
from tests.billing.estimation.texts import any_text, wild_text

KNOWN_IDS = {
    "o200k_base": [24912, 2375],
    "cl100k_base": [15339, 1917],
    "qwen2": [14990, 1879],
    "qwen3": [14990, 1879],
    "qwen3.5": [14556, 1814],
}
MAX_SECONDS = 20
"""For the worst of the long inputs on a busy machine; alone it takes about 3 s."""


@pytest.mark.parametrize(("name", "ids"), KNOWN_IDS.items())
def test_hello_world_has_the_known_ids(name: str, ids: list[int]) -> None:
    assert encoding(VOCABULARIES[name].file).encode_ordinary("hello world") == ids


@pytest.mark.parametrize("name", VOCABULARIES)
def test_hello_world_is_two_tokens(name: str) -> None:
    assert counter(name)("hello world") == 2


def test_a_recognised_control_token_is_one_token() -> None:
    assert counter("qwen3")("<think>not special?</think> <|im_end|> end") == 8
    assert counter("qwen2")("<|im_end|>") == 1
    assert counter("deepseek")("<think>") == 1


def test_a_control_token_of_a_hosted_vendor_counts_as_its_text() -> None:
    assert counter("o200k_base")("<|endoftext|>") == 7
    assert counter("qwen2")("<think>") == 3


@given(text=wild_text)
@settings(max_examples=30, deadline=None)
def test_no_text_is_dropped(text: str) -> None:
    """Decoding what was counted gives the text back, surrogates as a server sees them."""
    seen = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for name, vocabulary in VOCABULARIES.items():
        tokens = encoding(vocabulary.file).encode(
            text,
            allowed_special="all" if vocabulary.recognised is None else vocabulary.recognised,
            disallowed_special=(),
        )
        assert encoding(vocabulary.file).decode(tokens) == seen, name
        assert counter(name)(text) == len(tokens), name


@given(text=any_text)
@settings(max_examples=30, deadline=None)
def test_chunks_join_to_the_text(text: str) -> None:
    long = text * (2 * CHUNK_CHARS // max(len(text), 1) + 1)
    assert "".join(chunks(long)) == long
    assert all(len(chunk) <= CHUNK_CHARS for chunk in chunks(long))


def test_cutting_prose_does_not_change_its_count() -> None:
    text = "The quick brown fox, it is said, jumps.\n\n  Over the lazy dog 12345 times; 中文 too. "
    long = text * 3_000
    assert len(long) > 3 * CHUNK_CHARS
    for name in VOCABULARIES:
        assert counter(name)(long) == len(encoding(VOCABULARIES[name].file).encode_ordinary(long))


@pytest.mark.parametrize(
    "text",
    [
        " " * 200_000 + "x",
        "\n" * 200_000,
        "a" * 200_000,
        "\0" * 200_000,
        "\ud800" * 200_000,
        "👍🏽" * 100_000,
        pytest.param(" " * 3_000_000 + "x", marks=pytest.mark.long),
    ],
    ids=["spaces", "newlines", "letters", "nuls", "surrogates", "emoji", "worst"],
)
def test_long_inputs_are_counted_in_bounded_time(text: str) -> None:
    started = time.monotonic()
    assert counter("o200k_base")(text) > len(text) // 1_000
    assert time.monotonic() - started < MAX_SECONDS


def test_encodings_are_stock_tiktoken() -> None:
    for vocabulary in VOCABULARIES.values():
        assert type(encoding(vocabulary.file)) is tiktoken.Encoding
