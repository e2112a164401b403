"""llama.cpp's server behind the gateway: what it counts is charged, and what we count is the same.

The model answers as it does because its weights say so; the counts are those of any Qwen 3.
"""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.qualification.authored import ARITHMETIC, JSON_OBJECT
from tests.api.conftest import events, text_of

SEEDS = [(ARITHMETIC, "4", 21, 2), (JSON_OBJECT, '{"city":"Paris","count":3}', 34, 10)]
PROMPTS = 200
FIRST_SEED = 1_000  # a request's number, which passes through to the vendor
TWO_AT_A_TIME = 2

pytestmark = pytest.mark.stack


def counted(exchange) -> tuple[int, int]:
    charge = exchange.charge
    return charge.input_tokens + charge.cached_input_tokens, charge.output_tokens


def content_of(answer) -> str:
    return answer.json()["choices"][0]["message"]["content"]


@pytest.fixture
def spoken(routed, llama):
    return routed("tiny-spoken", llama)


@pytest.fixture
def silent(routed, silencer):
    return routed("tiny-silent", silencer.base_url)


@pytest.mark.parametrize(("prompt", "answer", "prompt_tokens", "completion_tokens"), SEEDS)
class TestSeeds:
    def test_one_body_is_charged_by_the_vendors_usage(
        self, spoken, prompt, answer, prompt_tokens, completion_tokens
    ):
        said = spoken.chat("tiny-spoken", prompt, temperature=0, max_tokens=128, stream=False)
        body = said.json()
        assert content_of(said) == answer
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["prompt_tokens"] == prompt_tokens
        assert body["usage"]["completion_tokens"] == completion_tokens
        exchange = spoken.settled(said)
        assert exchange.charge.usage_source == "vendor"
        assert counted(exchange) == (prompt_tokens, completion_tokens)

    def test_a_stream_is_charged_by_the_vendors_usage(
        self, spoken, prompt, answer, prompt_tokens, completion_tokens
    ):
        said = spoken.chat("tiny-spoken", prompt, temperature=0, max_tokens=128, stream=True)
        chunks = events(said)
        assert (text_of(chunks), chunks[-1]) == (answer, "[DONE]")
        exchange = spoken.settled(said)
        assert exchange.charge.usage_source == "vendor"
        assert counted(exchange) == (prompt_tokens, completion_tokens)

    @pytest.mark.parametrize("stream", [False, True])
    def test_without_usage_the_estimate_is_the_same(
        self, silent, stream, prompt, answer, prompt_tokens, completion_tokens
    ):
        said = silent.chat("tiny-silent", prompt, temperature=0, max_tokens=128, stream=stream)
        assert (text_of(events(said)) if stream else content_of(said)) == answer
        exchange = silent.settled(said)
        assert exchange.charge.usage_source == "estimate"
        assert exchange.charge.estimate["method"] == "template-exact"
        assert counted(exchange) == (prompt_tokens, completion_tokens)


def test_a_cut_answer_has_no_end_token(silent):
    """Its 20 tokens are all that it said: the end of a turn was never produced."""
    said = silent.chat("tiny-silent", "Go on forever.", temperature=0, max_tokens=20)
    assert said.json()["choices"][0]["finish_reason"] == "length"
    assert counted(silent.settled(said)) == (16, 20)


# --- many prompts -----------------------------------------------------------------------------

SCRIPTS = {
    "latin": "It cost 1,250.75 euros, didn't it? CamelCase snake_case naïve façade Ærøskøbing",
    "cyrillic": "Съешь же ещё этих мягких французских булок, да выпей чаю № 5",
    "greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία των ανθρώπων",
    "arabic": "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ٣٤٥",
    "hebrew": "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "devanagari": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा १२३",
    "thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์",
    "han": "我能吞下玻璃而不伤身体。天地玄黄，宇宙洪荒。",
    "kana": "いろはにほへと ちりぬるを コンピュータのプログラム",
    "hangul": "키스의 고유조건은 입술끼리 만나야 하고",
    "georgian": "გთხოვთ ახლავე გაიაროთ რეგისტრაცია Unicode-ის",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 ✨ ♻️ 0️⃣",
    "signs": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β → γ½ … “quoted” — ‹so› €£¥ ™",
    "code": 'def f(x):\n    return {"a": [x ** 2 for x in range(10)]}  #!\n\tif (!p) { p->q++; }',
    "spaces": "a  b   c\n\n\nd \t\t e\r\nf\u00a0g\u3000h   \n",
    "tokens": "<|im_start|>user\n<|im_end|> <think> </think> <|endoftext|> <tool_call> <|im_",
}


def made_prompts() -> list[dict]:
    """Each time the same: every script, with and without a system message, a history, thinking."""
    chance = random.Random(20261201)
    forms = itertools.cycle(itertools.product((False, True), (False, True), (None, False, True)))
    return [made_prompt(chance, *next(forms)) for _ in range(PROMPTS)]


def made_prompt(
    chance: random.Random, has_system: bool, has_history: bool, thinking: bool | None
) -> dict:
    messages = [{"role": "user", "content": made_text(chance)}]
    if has_history:
        messages = [
            {"role": "user", "content": made_text(chance)},
            {"role": "assistant", "content": made_text(chance).replace("think>", "thought>")},
            *messages,
        ]
    if has_system:
        messages.insert(0, {"role": "system", "content": made_text(chance)})
    switch = {} if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}}
    return {"messages": messages, **switch}


def made_text(chance: random.Random) -> str:
    texts = chance.sample(list(SCRIPTS.values()), chance.randint(1, 3))
    pieces = [piece for text in texts for piece in made_pieces(chance, text)]
    chance.shuffle(pieces)
    return "".join(pieces)


def made_pieces(chance: random.Random, text: str) -> list[str]:
    """Cut anywhere, also inside of words."""
    start = chance.randrange(len(text))
    cut = chance.randrange(start, len(text) + 1)
    return [text[:start], text[start:cut], text[cut:]]


@pytest.mark.timeout(180)
def test_estimate_is_the_vendors_usage_on_many_prompts(silent, silencer):
    """What the vendor said was kept on its way; what we charge was counted without it."""

    def ask(numbered: tuple[int, dict]):
        seed, prompt = numbered
        return silent.chat("tiny-silent", seed=seed, temperature=0, max_tokens=32, **prompt)

    with ThreadPoolExecutor(TWO_AT_A_TIME) as threads:
        answers = list(threads.map(ask, enumerate(made_prompts(), FIRST_SEED)))
    assert {answer.status_code for answer in answers} == {200}
    charges = [silent.settled(answer).charge for answer in answers]
    assert {charge.usage_source for charge in charges} == {"estimate"}
    ours = [(charge.input_tokens, charge.output_tokens) for charge in charges]
    usages = [silencer.said[seed] for seed in range(FIRST_SEED, FIRST_SEED + PROMPTS)]
    assert ours == [(usage["prompt_tokens"], usage["completion_tokens"]) for usage in usages]
