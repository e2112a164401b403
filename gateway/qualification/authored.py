"""What a vendor is asked: written once, small, and the same for every vendor."""

from typing import Any, Final

JsonObject = dict[str, Any]

ANSWER_TOKENS: Final = 128
SHORT_ANSWER_TOKENS: Final = 16
ENDLESS_ANSWER_TOKENS: Final = 2_048
LONG_INPUT_WORDS: Final = 3_000

ARITHMETIC: Final = "Compute 2+2. Answer briefly."
JSON_OBJECT: Final = (
    "Return only valid JSON with no markdown. The object must be exactly "
    '{"city":"Paris","count":3}.'
)
SEVERAL_SCRIPTS: Final = (
    "Repeat this line: Grüße aus Köln, привет из Москвы, 東京からこんにちは, مرحبا, 🙂🚀, x²≤π."
)
TERSE: Final = "You answer in one short sentence."
ENDLESS: Final = "Count upwards in words, one number after the other, and go on forever."
TOOL_USE: Final = "Look up the word farthing with the function that you have."
TOOL_NAME: Final = "look_up"
TOOL_PARAMETER: Final = "query"
TOOL: Final[JsonObject] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Look up a word in a dictionary.",
        "parameters": {
            "type": "object",
            "properties": {TOOL_PARAMETER: {"type": "string", "description": "The word."}},
            "required": [TOOL_PARAMETER],
        },
    },
}
# Words that are one token in every vocabulary we know, so that a count tells if some were cut.
LONG_WORDS: Final = ("the", "river", "and", "the", "stone", "under", "a", "green", "hill", "rest")


def plain(model: str, text: str, *, max_tokens: int = ANSWER_TOKENS) -> JsonObject:
    """One user message, answered as one body."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "stream": False,
    }


def streamed(model: str, text: str, *, max_tokens: int = ANSWER_TOKENS) -> JsonObject:
    return {**plain(model, text, max_tokens=max_tokens), "stream": True}


def with_usage(model: str) -> JsonObject:
    return {**streamed(model, ARITHMETIC), "stream_options": {"include_usage": True}}


def in_several_scripts(model: str) -> JsonObject:
    body = plain(model, SEVERAL_SCRIPTS)
    return {**body, "messages": [{"role": "system", "content": TERSE}, *body["messages"]]}


def with_tool(model: str) -> JsonObject:
    return {**plain(model, TOOL_USE), "tools": [TOOL]}


def malformed(model: str) -> JsonObject:
    """Refused before any model runs, by whoever reads what it is sent."""
    body = plain(model, "", max_tokens=SHORT_ANSWER_TOKENS)
    return {**body, "messages": "this is no list"}


def long(model: str, words: int) -> JsonObject:
    text = " ".join(LONG_WORDS[place % len(LONG_WORDS)] for place in range(words))
    return plain(model, text, max_tokens=SHORT_ANSWER_TOKENS)
