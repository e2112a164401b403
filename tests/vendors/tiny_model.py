"""A model of 20 million hand-set weights with Qwen's true vocabulary, made in seconds.

It is for servers that want real files: their tokenizer, template and usage are then those of a
real Qwen, while the answers are ours. One layer, whose attention looks at all tokens evenly and so
tells which words were seen anywhere before; the head then picks an answer by the words seen, and
goes on from each token of an answer to the next. Words that no answer has lead to the end.
"""

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from billing.estimation.vocabularies import VOCABULARIES, encoding, locate

TOKENS = 151_936  # rows of the real models' embedding; the last few hundred are unused
WIDTH = 64
HEADS = 2
CONTEXT_TOKENS = 32_768
EPSILON = 1e-6
END = "<|im_end|>"
PAD = "<|endoftext|>"
OPENINGS = ("\n", "\n\n")  # what a prompt ends with: after the role, or after an empty thought

# The first answer whose word was seen wins by far; the last is for all other prompts.
ANSWERS: tuple[tuple[str, str], ...] = (
    ("Compute", "4"),
    (" JSON", '{"city":"Paris","count":3}'),
    ("", "This is a very small model."),
)
ENDLESS: tuple[str, tuple[str, str]] = (" forever", (" up", " down"))

NEXT = 60_000.0  # nearly the largest half-precision number: nothing outweighs what follows
OPEN = 2_048.0
PLAIN = 8.0  # by how much the plain answer leads while no word was seen
SEEN = 8_000.0

# Qwen 3's chat template, less its tools: text, roles and the thinking switch, which is off here
# unless a request says otherwise.
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is not defined or enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}{%- endif %}"
)

Ranks = dict[bytes, int]


@dataclass(frozen=True)
class TinyModel:
    ranks: Ranks
    merges: list[tuple[bytes, bytes]]
    specials: dict[str, int]
    weights: dict[str, np.ndarray]  # by llama.cpp's names


def make() -> TinyModel:
    file = VOCABULARIES["qwen3"].file
    lines = (line.split() for line in locate(file).read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return TinyModel(ranks, list(merges_of(ranks)), dict(file.special), weights())


def merges_of(ranks: Ranks) -> Iterator[tuple[bytes, bytes]]:
    """The two tokens that byte-pair encoding joins last for each token: its rule, by rank."""
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) > 1:
            left, right = _parts(token, ranks)
            yield left, right


def _parts(token: bytes, ranks: Ranks) -> list[bytes]:
    parts = [token[at : at + 1] for at in range(len(token))]
    none = len(ranks)
    while len(parts) > 2:
        pairs = [ranks.get(parts[at] + parts[at + 1], none) for at in range(len(parts) - 1)]
        at = pairs.index(min(pairs))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


# --- the weights ------------------------------------------------------------------------------


class _Mind:
    """Gives each token that matters a direction of its own; all others share direction 0."""

    def __init__(self) -> None:
        self._encode = encoding(VOCABULARIES["qwen3"].file).encode
        self._directions: dict[str | int, int] = {}
        self.embedding = np.zeros((TOKENS, WIDTH), np.float16)
        self.embedding[:, 0] = 1
        self.head = np.zeros((TOKENS, WIDTH), np.float16)
        self.reader = np.zeros((WIDTH, WIDTH), np.float16)

    def tokens(self, text: str) -> list[int]:
        return self._encode(text, allowed_special="all")

    def token(self, text: str) -> int:
        (token,) = self.tokens(text)
        return token

    def direction(self, of: str | int) -> int:
        """Of a token, or of a word's having been seen."""
        known = of in self._directions
        place = self._directions.setdefault(of, len(self._directions) + 1)
        assert place < WIDTH
        if not known and isinstance(of, int):
            self.embedding[of] = 0
            self.embedding[of, place] = 1
        return place

    def follow(self, token: int, successor: int) -> None:
        self.head[successor, self.direction(token)] = NEXT

    def open(self, first: int, word: str) -> None:
        for opening in OPENINGS:
            self.head[first, self.direction(self.token(opening))] = OPEN + (0 if word else PLAIN)
        if word:
            seen = self.direction(f"seen {word}")
            self.reader[seen, self.direction(self.token(word))] = 1
            self.head[first, seen] = SEEN


def weights() -> dict[str, np.ndarray]:
    mind = _Mind()
    end = mind.token(END)
    mind.head[end, 0] = 1
    for word, answer in ANSWERS:
        tokens = [*mind.tokens(answer), end]
        assert len(set(tokens)) == len(tokens), "an answer has no token twice"
        mind.open(tokens[0], word)
        for token, successor in pairwise(tokens):
            mind.follow(token, successor)
    word, (up, down) = ENDLESS
    mind.open(mind.token(up), word)
    mind.follow(mind.token(up), mind.token(down))
    mind.follow(mind.token(down), mind.token(up))
    return {
        "token_embd": mind.embedding,
        "output": mind.head,
        "output_norm": np.ones(WIDTH, np.float32),
        **_layer(mind.reader),
    }


def _layer(reader: np.ndarray) -> dict[str, np.ndarray]:
    nothing = np.zeros((WIDTH, WIDTH), np.float16)
    return {
        "blk.0.attn_norm": np.ones(WIDTH, np.float32),
        "blk.0.attn_q": nothing,
        "blk.0.attn_k": nothing,
        "blk.0.attn_v": np.eye(WIDTH, dtype=np.float16),
        "blk.0.attn_output": reader,
        "blk.0.ffn_norm": np.ones(WIDTH, np.float32),
        "blk.0.ffn_gate": nothing,
        "blk.0.ffn_up": nothing,
        "blk.0.ffn_down": nothing,
    }


# --- the files --------------------------------------------------------------------------------


def _letters() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte, which both file formats write tokens in."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in plain)
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + place) for place, byte in enumerate(others)
    }


_LETTERS = _letters()


def _spell(token: bytes) -> str:
    return "".join(map(_LETTERS.__getitem__, token))


def write_gguf(model: TinyModel, path: Path) -> None:
    """For llama.cpp."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(TOKENS)
    writer.add_chat_template(TEMPLATE)
    _write_vocabulary(writer, model)
    for name, weight in model.weights.items():
        writer.add_tensor(f"{name}.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_mlx(model: TinyModel, folder: Path) -> None:
    """For mlx_lm: a folder in the form of the hubs. Its weights are single precision, since it
    multiplies in the weights' own.
    """
    layer = "model.layers.0."
    names = {
        "token_embd": "model.embed_tokens",
        "output": "lm_head",
        "output_norm": "model.norm",
        "blk.0.attn_norm": f"{layer}input_layernorm",
        "blk.0.attn_q": f"{layer}self_attn.q_proj",
        "blk.0.attn_k": f"{layer}self_attn.k_proj",
        "blk.0.attn_v": f"{layer}self_attn.v_proj",
        "blk.0.attn_output": f"{layer}self_attn.o_proj",
        "blk.0.ffn_norm": f"{layer}post_attention_layernorm",
        "blk.0.ffn_gate": f"{layer}mlp.gate_proj",
        "blk.0.ffn_up": f"{layer}mlp.up_proj",
        "blk.0.ffn_down": f"{layer}mlp.down_proj",
    }
    folder.mkdir(parents=True)
    weights = {
        f"{names[name]}.weight": weight.astype("<f4") for name, weight in model.weights.items()
    }
    _write_safetensors(weights, folder / "model.safetensors")
    _write_json(folder / "config.json", _config(model))
    _write_json(folder / "tokenizer.json", _tokenizer(model))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": PAD,
            "clean_up_tokenization_spaces": False,
            "model_max_length": CONTEXT_TOKENS,
            "chat_template": TEMPLATE,
        },
    )


def _write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False))


def _write_safetensors(weights: dict[str, np.ndarray], path: Path) -> None:
    """The length of a JSON header, the header, and one array after the other."""
    header, end = {}, 0
    for name, weight in weights.items():
        start, end = end, end + weight.nbytes
        header[name] = {"dtype": "F32", "shape": weight.shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for weight in weights.values():
            file.write(weight.tobytes())


def _config(model: TinyModel) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": TOKENS,
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": WIDTH // HEADS,
        "rms_norm_eps": EPSILON,
        "rope_theta": 10_000.0,
        "max_position_embeddings": CONTEXT_TOKENS,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "eos_token_id": model.specials[END],
    }


def _tokenizer(model: TinyModel) -> dict:
    pattern = VOCABULARIES["qwen3"].file.pattern
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    flags = dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), False)
    byte_level = {"type": "ByteLevel", **flags}
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": place,
                "content": text,
                "special": text.startswith("<|"),
                **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
            }
            for text, place in model.specials.items()
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut, byte_level]},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {_spell(token): place for token, place in model.ranks.items()},
            "merges": [[_spell(left), _spell(right)] for left, right in model.merges],
        },
    }


def _write_vocabulary(writer, model: TinyModel) -> None:
    from gguf import TokenType

    tokens = [f"[unused {place}]" for place in range(TOKENS)]
    types = [TokenType.UNUSED] * TOKENS
    for token, place in model.ranks.items():
        tokens[place], types[place] = _spell(token), TokenType.NORMAL
    for text, place in model.specials.items():
        is_control = text.startswith("<|")
        tokens[place] = text
        types[place] = TokenType.CONTROL if is_control else TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{_spell(left)} {_spell(right)}" for left, right in model.merges])
    writer.add_eos_token_id(model.specials[END])
    writer.add_pad_token_id(model.specials[PAD])
    writer.add_add_bos_token(False)
