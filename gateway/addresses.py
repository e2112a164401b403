"""Where a request comes from: what proxies forward is believed from configured ones only.

`true_scope` is asked once, before anything else looks at a request; behind it nothing reads a
forwarded header. `X-Forwarded-For` and `-Proto` are believed; every other one (`-Host`, `-Port`,
`Forwarded`, `Via`, `X-Real-IP`) decides nothing, and is kept in transcripts as what it is: words
of whoever sent them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings

from keys.networks import Address, Network, address_of, network_of

Scope = dict[str, Any]

FORWARDED_HOPS_MAX = 20
SCHEMES = frozenset({"http", "https"})


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read addresses and ranges. Raises ValueError, which names the one that is neither."""
    return tuple(map(network_of, texts))


def true_scope(scope: Scope) -> Scope:
    """Return the request with the client's own address and scheme, whoever passed it on."""
    peer, port = scope.get("client") or ("", 0)
    address = address_of(peer)
    if address is None:
        return scope  # a socket without addresses: nobody is there to be trusted
    proxies: Sequence[Network] = settings.TRUSTED_PROXIES
    if not _is_in(address, proxies):
        return scope if str(address) == peer else {**scope, "client": (str(address), port)}
    client = _client_behind(address, _said(scope, b"x-forwarded-for"), proxies)
    *_, nearest = _said(scope, b"x-forwarded-proto") or [""]
    scheme = nearest.lower() if nearest.lower() in SCHEMES else scope["scheme"]
    return {**scope, "client": (str(client), 0), "scheme": scheme}


def _client_behind(peer: Address, hops: Sequence[str], proxies: Sequence[Network]) -> Address:
    """Return the first hop from the right that is no trusted proxy, else the last that is one.

    Each proxy adds whom it heard on the right, so what stands left of a stranger is his word.
    """
    address = peer
    for text in reversed(hops[-FORWARDED_HOPS_MAX:]):
        hop = address_of(_without_port(text))
        if hop is None:
            break
        address = hop
        if not _is_in(hop, proxies):
            break
    return address


def _said(scope: Scope, wanted: bytes) -> list[str]:
    """Return the values of a header's lists, in order over all of its lines."""
    lines = [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]
    return [text.strip() for line in lines for text in line.split(",")]


def _without_port(text: str) -> str:
    """Some balancers write `203.0.113.9:4711` or `[2001:db8::1]:4711`."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, colon, port = text.partition(":")
    return host if colon and port.isdecimal() else text


def _is_in(address: Address, ranges: Sequence[Network]) -> bool:
    return any(address in network for network in ranges)
