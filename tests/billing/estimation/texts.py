"""Wild texts for property tests: words of many scripts, white space of every kind, control tokens,
lone surrogates, NULs, runs and binary-looking strings."""

from hypothesis import strategies as st

WORDS = (
    "hello", "The", "foo(bar", "12345", "...", '";\n', "{", "}", "don't", "'s", "I'LL", "ZZz",
    "==", "//", ").", "_x", "0x1F", "a.b.c", "http://x.y/z?q=1", "中文", "。", "，然后",
    "日本語" * 20, "かな", "한국어", "ไทย", "Привет", "мир,", "مرحبا", "שלום", "नमस्ते", "é",
    "e\u0301", "½", "²", "١٢٣", "１２", "￥", "—", "🐈", "👍🏽", "\u200d", "\ufeff", "\u0345",
    "ʰ", "Ǆ", "\ud800", "\udfff", "\0", "\x1c", "\x1f", "x" * 60, "<|im_end|>",
    "<|endoftext|>", "<think>", "</think>", "<｜User｜>", "<|im", "QUJDREVG" * 12,
)  # fmt: skip
SPACES = (
    " ", " ", " ", " ", " ", " ", "", "", "  ", "    ", "\n", "\n\n", "\n    ", "\n ", " \n",
    "\n \n", "  \n   \n  ", "\t", "\t ", " \t", "\n\t", "\t\n", "\t\n  ", "\r\n", "\r\n  ",
    "\u3000", "\xa0", " \xa0", "\xa0 ", "\u2028", " \x0b ", "\x85", " " * 90, "\n" * 9,
)  # fmt: skip

any_text = st.text(st.characters(), max_size=200)
"""Any code points, surrogates among them."""
wild_text = (
    st.lists(
        st.one_of(st.sampled_from(WORDS), st.sampled_from(SPACES), st.text(max_size=4)), max_size=60
    ).map("".join)
    | any_text
)

json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(), max_size=12), inner, max_size=4)
    ),
    max_leaves=20,
)
