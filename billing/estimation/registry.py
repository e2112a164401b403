"""From a model's name to its family. A new family is one file in `families` and one row here."""

import re
from functools import lru_cache

from billing.estimation.families import (
    claude,
    deepseek,
    fallback,
    gemini,
    glm,
    gpt_oss,
    llama,
    mistral,
    openai,
    qwen,
)
from billing.estimation.family import Family

_NAMES_KEPT = 4_096

_ROWS: tuple[tuple[str, Family], ...] = (
    (r"gpt-?oss", gpt_oss.GPT_OSS),
    (r"deepseek(?!.*distill)", deepseek.DEEPSEEK),
    (r"claude(-?[5-9]|.*(4[.-]([7-9]|\d\d)|[a-z]-?[5-9])(?!\d))", claude.CLAUDE_4_7),
    (r"claude", claude.CLAUDE),
    (r"gemini|gemma", gemini.GEMINI),
    (r"glm", glm.GLM),
    (r"llama-?4", llama.LLAMA_4),
    (r"llama", llama.LLAMA_3),
    (r"mi(s|x|nis)tral|magistral|codestral|devstral|pixtral|voxtral", mistral.MISTRAL),
    (r"qwen-?3\.[5-9]", qwen.QWEN_3_5),
    (r"qwen-?3-coder|qwen-coder-plus", qwen.QWEN_3_CODER),
    (r"qwen-?3|qwq|qwen-(plus|max|turbo|flash)", qwen.QWEN_3),
    (r"qwen-?2\.5|qvq", qwen.QWEN_2_5),
    (r"qwen", qwen.QWEN_2),
    (r"gpt-?(3\.5|35)|gpt-?4(?![\w.]|-(1|5)\b)|davinci-002|babbage-002", openai.OPENAI_CL100K),
    (r"gpt-?4[.-]?[o15]|chatgpt", openai.OPENAI_O200K),
    (r"gpt-?[5-9]|(?<![a-z])o[1-9](?![a-z0-9])|codex-mini", openai.OPENAI_REASONER),
)
"""First match wins, searched anywhere in the lower-case name: vendors add prefixes and dates."""

_PATTERNS = tuple((re.compile(pattern), family) for pattern, family in _ROWS)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *(family for _, family in _ROWS),
        qwen.QWEN_3_SILENT,
        qwen.QWEN_3_5_SILENT,
        fallback.FALLBACK,
    )
}
"""Every family by the name that a catalog route may give, which wins over the model's name."""


class UnknownFamilyError(ValueError):
    """A catalog route names a family that the registry does not have."""


def check_family(name: str) -> None:
    """Raises UnknownFamilyError unless `name` is a family's name; for whoever edits a catalog."""
    if name not in FAMILIES:
        raise UnknownFamilyError(f"unknown family {name!r}; one of {', '.join(sorted(FAMILIES))}")


@lru_cache(maxsize=_NAMES_KEPT)
def family_of(model: str, family: str | None = None) -> Family:
    """The family of a model. A name that the registry does not have is as good as none."""
    if family and family in FAMILIES:
        return FAMILIES[family]
    name = model.lower().replace("_", "-")
    for pattern, found in _PATTERNS:
        if pattern.search(name):
            return found
    return fallback.FALLBACK
