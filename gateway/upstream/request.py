"""Writing the head of a request, and refusing what must never reach a socket."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from gateway.upstream.errors import InvalidRequest

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
REQUEST_LINES_CACHED: Final = 1024
# The client owns the framing and the connection: a caller that sets one of these by accident
# (say, by copying a request's headers) could make the vendor read a different message.
OWNED_HEADERS: Final = frozenset(
    (
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)

# RFC 9110 §5.1 and §5.5: a token, and a value without control characters but tab.
_HEADER_LINES: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)*")
_TARGET: Final = re.compile(r"/[\x21-\x7e]*")
_METHOD: Final = re.compile(rb"[A-Z]+")


@dataclass(frozen=True, slots=True)
class Origin:
    """A vendor's address, taken apart once."""

    host: str
    port: int
    is_tls: bool
    path_prefix: str
    authority: bytes

    @classmethod
    def from_base_url(cls, base_url: str) -> "Origin":
        """Raise ValueError for anything but `http(s)://host[:port][/prefix]`.

        User and password in a URL are refused: they would end up in logs.
        """
        parts = urlsplit(base_url)
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
            raise ValueError("a base URL is http:// or https:// with a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a base URL carries no credentials")
        if parts.query or parts.fragment:
            raise ValueError("a base URL has no query and no fragment")
        prefix = parts.path.rstrip("/")
        if prefix and not _TARGET.fullmatch(prefix):
            raise ValueError("a base URL's path is plain ASCII")
        host = parts.hostname if ":" in parts.hostname else _ascii_host(parts.hostname)
        port = DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
        return cls(
            host, port, parts.scheme == "https", prefix, _authority(host, port, parts.scheme)
        )


def _ascii_host(host: str) -> str:
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _authority(host: str, port: int, scheme: str) -> bytes:
    # A zone (`fe80::1%eth0`) means something on this machine only (RFC 9110 §7.2, RFC 6874).
    name = f"[{host.partition('%')[0]}]" if ":" in host else host
    return (name if port == DEFAULT_PORTS[scheme] else f"{name}:{port}").encode("ascii")


def encode_head(
    origin: Origin,
    method: bytes,
    path: str,
    headers: Sequence[tuple[bytes, bytes]],
    body_bytes: int,
) -> bytes:
    """Raise InvalidRequest for a path, name or value that is not plain HTTP."""
    lines = b"\r\n".join([*map(b": ".join, headers), b""])
    # The pattern alone would let a value smuggle a whole well-formed line; the count would not.
    if lines.count(b"\n") != len(headers) or not _HEADER_LINES.fullmatch(lines):
        raise InvalidRequest("a header's name or value cannot be sent")
    for name, _ in headers:
        if name.lower() in OWNED_HEADERS:
            raise InvalidRequest(f"the header {name.decode('ascii')} belongs to the client")
    return b"%b%bcontent-length: %d\r\n\r\n" % (_opening(origin, method, path), lines, body_bytes)


@lru_cache(maxsize=REQUEST_LINES_CACHED)
def _opening(origin: Origin, method: bytes, path: str) -> bytes:
    if not _METHOD.fullmatch(method) or not _TARGET.fullmatch(path):
        raise InvalidRequest("a method is capital letters, a path starts with / and is plain ASCII")
    target = f"{origin.path_prefix}{path}".encode("ascii")
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method, target, origin.authority)
