"""In which order the routes of a model are tried."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import attrgetter
from typing import Any

from gateway.runtime.snapshot import RouteTo

ATTEMPTS_MAX = 4
PREFIX_CHARACTERS = 2_048  # of each text by which a conversation is known again
PREFIX_MESSAGES = 8
PREFIX_PARTS = 8
LOT_BYTES = 8
LOTS = 1 << (8 * LOT_BYTES)


def in_order(routes: Sequence[RouteTo], key: bytes | None = None) -> list[RouteTo]:
    """Lowest priority number first; within one priority in proportion to weight.

    By chance without a `key`. With one, by weighted rendezvous hashing: the same key finds the
    same order of the routes that there are, on every gateway.
    """
    if len(routes) == 1:
        return list(routes)
    ordered: list[RouteTo] = []
    for _, group in groupby(sorted(routes, key=_priority), key=_priority):
        ordered.extend(sorted(group, key=lambda route: _lot(route, key), reverse=True))
    return ordered[:ATTEMPTS_MAX]


def prompt_key(tenant_id: int, model: str, payload: Mapping[str, Any]) -> bytes:
    """What requests share whose prompts begin alike, and whose vendor's cache may thus help.

    The tenant's own word for it, `prompt_cache_key`, or the beginning of a conversation: system
    messages and the first of the user, which stay while it grows.
    """
    digest = blake2b(digest_size=16)
    digest.update(f"{tenant_id}\0{model}\0".encode("utf-8", "surrogatepass"))
    own = payload.get("prompt_cache_key")
    texts = [own] if isinstance(own, str) and own else _beginning(payload.get("messages"))
    for text in texts:
        digest.update(text[:PREFIX_CHARACTERS].encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.digest()


_priority = attrgetter("priority")


def _lot(route: RouteTo, key: bytes | None) -> float:
    """A draw whose order favours routes by weight (Efraimidis and Spirakis, 2006).

    The logarithm of their `u ** (1 / weight)`, so that no weight is too large for a float.
    """
    if not route.weight:
        return -math.inf
    chance = random.random() if key is None else _chance(route, key)
    return math.log(chance or 1 / LOTS) / route.weight


def _chance(route: RouteTo, key: bytes) -> float:
    name = f"{route.vendor.name}\0{route.vendor_model}".encode()
    lot = blake2b(name, key=key, digest_size=LOT_BYTES).digest()
    return int.from_bytes(lot) / LOTS


def _beginning(messages: Any) -> Iterator[str]:
    for message in (messages if isinstance(messages, list) else [])[:PREFIX_MESSAGES]:
        if not isinstance(message, dict):
            return
        yield str(message.get("role"))
        yield from _texts(message.get("content"))
        if message.get("role") == "user":
            return


def _texts(content: Any) -> Iterator[str]:
    """The texts of a content, which is one or a list of parts; what is no text is left out."""
    if isinstance(content, str):
        yield content
    for part in (content if isinstance(content, list) else [])[:PREFIX_PARTS]:
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str):
            yield text
