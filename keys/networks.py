"""Addresses and ranges of both families. IPv4 in IPv6's clothes (`::ffff:10.0.0.5`) is IPv4."""

import ipaddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAPPED_PREFIX_BITS = 96


def network_of(text: str) -> Network:
    """Read an address or a range, written by any address in it. Raises ValueError."""
    network = ipaddress.ip_network(text, strict=False)
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= MAPPED_PREFIX_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - MAPPED_PREFIX_BITS))
    return network


def address_of(text: str) -> Address | None:
    """Read an address; None for anything else."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address
