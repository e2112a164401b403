import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.estimation import FAMILIES, UnknownFamilyError, check_family, family_of

NAMES = {
    "openai-cl100k": ["gpt-4", "gpt-4-0613", "gpt-4-turbo", "gpt-3.5-turbo", "azure/gpt-35-turbo"],
    "openai-o200k": ["gpt-4o", "gpt-4o-mini-2024-07-18", "gpt-4.1-nano", "gpt-4-1", "chatgpt-4o"],
    "openai-reasoning": ["o1", "o3-mini", "openai/o3", "o4-mini", "gpt-5", "gpt-5.4-mini"],
    "gpt-oss": ["gpt-oss-120b", "openai/gpt-oss-20b", "gpt-oss:20b"],
    "qwen2": ["Qwen2-7B-Instruct", "qwen1.5-chat"],
    "qwen2.5": ["qwen2.5-coder-1.5b-free-g7", "Qwen/Qwen2.5-72B-Instruct"],
    "qwen3": ["qwen3-8b", "Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen-max", "tiny-qwen3"],
    "qwen3-coder": ["qwen-3-coder-480b", "Qwen3-Coder-30B"],
    "qwen3.5": ["Qwen/Qwen3.5-35B", "qwen3.6-27b"],
    "deepseek": ["deepseek-chat", "deepseek-ai/DeepSeek-R1", "deepseek-v4-flash"],
    "llama3": ["llama-3.3-70b-versatile", "Meta-Llama-3.1-8B", "deepseek-r1-distill-llama-8b"],
    "llama4": ["meta-llama/llama-4-scout-17b-16e-instruct"],
    "mistral": ["mistral-large-latest", "open-mixtral-8x7b", "ministral-8b", "magistral-small"],
    "claude": [
        "claude-2.1",
        "claude-3-5-haiku-20241022",
        "claude-sonnet-4-20250514",
        "claude-opus-4-6",
        "us.anthropic.claude-3-sonnet-v1:0",
        "anthropic/claude-4.5-sonnet-20250929",
    ],
    "claude-4.7": ["claude-opus-4-7", "claude-opus-4.8", "claude-sonnet-5", "claude-fable-5"],
    "gemini": ["gemini-2.5-pro", "models/gemini-1.5-flash", "google/gemini-3-flash-preview"],
    "glm": ["glm-4.7", "zai/GLM-5.2"],
    "fallback": ["kimi-k2", "grok-4", "alias-m", "", "default_model"],
}


@pytest.mark.parametrize(
    ("family", "model"), [(family, model) for family, models in NAMES.items() for model in models]
)
def test_a_model_is_of_its_family(family: str, model: str) -> None:
    assert family_of(model).name == family


def test_an_explicit_family_wins() -> None:
    assert family_of("gpt-4o", "qwen3").name == "qwen3"


def test_a_family_that_is_not_in_the_registry_is_as_good_as_none() -> None:
    assert family_of("gpt-4o", "gone").name == "openai-o200k"


def test_whoever_edits_a_catalog_is_told() -> None:
    check_family("qwen3")
    with pytest.raises(UnknownFamilyError, match="unknown family 'gone'; one of claude, "):
        check_family("gone")


def test_every_family_has_a_name_of_its_own_and_a_model_or_a_reason() -> None:
    by_route_only = {"qwen3-nothink", "qwen3.5-nothink"}
    assert set(FAMILIES) == set(NAMES) | by_route_only


@given(st.text())
def test_every_name_has_a_family(model: str) -> None:
    assert family_of(model).name in FAMILIES
