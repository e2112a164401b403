"""Where a request comes from: forwarded headers are believed from configured proxies only."""

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

from django.conf import settings

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

FORWARDED_HOPS_MAX = 20
MAPPED_PREFIX = "::ffff:"  # an IPv4 client of a socket that speaks IPv6


def client_address(peer: str, forwarded_for: str) -> str:
    """The first hop from the right that is no trusted proxy; the peer itself if it is none."""
    if not settings.TRUSTED_PROXIES:
        return peer.removeprefix(MAPPED_PREFIX)
    trusted = _trusted(tuple(settings.TRUSTED_PROXIES))
    address = _parse(peer)
    if not trusted or address is None or not _is_in(address, trusted):
        return str(address or peer)
    for text in reversed(forwarded_for.split(",")[-FORWARDED_HOPS_MAX:]):
        hop = _parse(text.strip())
        if hop is None:
            break
        address = hop
        if not _is_in(hop, trusted):
            break
    return str(address)


@lru_cache(maxsize=8)
def _trusted(texts: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _parse(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address
