import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.estimation import parts
from billing.estimation.parts import (
    FIRST_TOKENS,
    LETTERLESS_TOKENS,
    PartCounter,
    WholeWords,
    parts_of,
)
from billing.estimation.text import counter
from billing.estimation.vocabularies import VOCABULARIES, encoding
from tests.billing.estimation.texts import wild_text

NAMES = sorted(VOCABULARIES)
PART_COUNTERS = {
    name: PartCounter(vocabulary, parts_of(vocabulary.file))
    for name, vocabulary in VOCABULARIES.items()
}
SAMPLES = {
    "English": (
        "Yesterday the committee published its findings; nobody, it said, had been informed. The"
        " chairman's letter (dated 14 May) asks for $1,250.50 and an apology."
    ),
    "code": (
        "def total(rows: list[Row]) -> int:\n    return sum(row.amount_cents for row in rows"
        " if not row.is_void)\n\n\nclass Ledger:\n    rows: dict[str, int]\n"
    ),
    "French": "L'été dernier, nous avons traversé les Pyrénées à vélo malgré la chaleur.",
    "German": "Die Gemeinde beschloss, das alte Fährhaus über dem Fluss vollständig zu erneuern.",
    "Russian": "Вчера комиссия опубликовала доклад, о котором раньше никто ничего не знал.",
    "Arabic": "نشرت اللجنة أمس تقريرها الذي لم يكن أحد يعلم عنه شيئا من قبل.",
    "Hindi": "समिति ने कल अपनी रिपोर्ट प्रकाशित की जिसके बारे में पहले किसी को पता नहीं था।",
    "Chinese": "委员会昨天公布了调查结果，此前没有人知道这份报告的内容。大家都感到十分惊讶。",
    "Japanese": "委員会は昨日、これまで誰も知らなかった調査結果を公表しました。",
    "Korean": "위원회는 어제 아무도 알지 못했던 조사 결과를 발표했습니다.",
    "Thai": "คณะกรรมการเผยแพร่ผลการสอบสวนเมื่อวานนี้ ซึ่งไม่มีใครทราบมาก่อน",
    "emoji": "Done 🎉🎉 see you at the beach 🏖️ 👍🏽 ❤️",
    "Chinese and English": "请用Python调用这个API，并把结果写成JSON格式返回给用户。",
}


def check_parts(text: str) -> None:
    for name in NAMES:
        assert PART_COUNTERS[name](text) >= counter(name)(text), name


@given(text=wild_text)
@settings(max_examples=40, deadline=None)
def test_a_part_counts_no_less_than_the_whole(text: str) -> None:
    check_parts(text)


@pytest.mark.long
@given(text=wild_text)
@settings(max_examples=5_000, deadline=None)
def test_a_part_counts_no_less_than_the_whole_of_many(text: str) -> None:
    check_parts(text)


@given(text=wild_text, sign=st.sampled_from("，。、；：！？"))
@settings(max_examples=30, deadline=None)
def test_a_text_is_the_sum_of_its_segments(text: str, sign: str) -> None:
    """What counting mixed texts segment by segment rests on."""
    mixed = f"{text}中{sign}文a{sign}b{text}"
    for name in NAMES:
        count = counter(name)
        assert sum(map(count, parts._CUT.split(mixed))) == count(mixed), name


@pytest.mark.parametrize("kind", SAMPLES)
def test_common_text_is_bounded_nearly(kind: str) -> None:
    """Not in Qwen 3.5's vocabulary, whose scripts came last."""
    for name in ("o200k_base", "cl100k_base", "qwen3", "deepseek"):
        count, bounded = counter(name)(SAMPLES[kind]), PART_COUNTERS[name](SAMPLES[kind])
        assert count <= bounded <= 2 * count


def words_of(name: str) -> list[str]:
    file = VOCABULARIES[name].file
    return [word for word, _ in parts._words(file, encoding(file)._mergeable_ranks)]


def test_a_frequent_word_is_one_token() -> None:
    for name in NAMES:
        frequent = parts_of(VOCABULARIES[name].file).frequent
        assert len(frequent) > 15_000
        assert [w for w in islice(frequent, 0, None, 50) if counter(name)(" " + w) != 1] == []


@pytest.mark.long
def test_a_whole_word_is_one_token() -> None:
    for name in NAMES:
        assert [word for word in words_of(name) if counter(name)(" " + word) != 1] == []


def test_words_are_found_by_hash() -> None:
    known = WholeWords(["one", "two"])
    assert "one" in known
    assert "three" not in known
    assert "one" not in WholeWords([])


def test_control_tokens_have_letters() -> None:
    """What leaving them out of the letterless part rests on."""
    for name in NAMES:
        special = encoding(VOCABULARIES[name].file).special_tokens_set
        assert all(re.search("[A-Za-z]", token) for token in special)


def test_parts_are_small() -> None:
    for name in NAMES:
        kept = parts_of(VOCABULARIES[name].file)
        assert len(kept.first.token_byte_values()) <= FIRST_TOKENS
        assert len(kept.letterless.token_byte_values()) <= LETTERLESS_TOKENS + 256
