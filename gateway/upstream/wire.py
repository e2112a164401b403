"""What the kernel knows of a connection before the event loop does.

A server may close an idle connection in the very moment in which we use it. Two questions can be
put to the kernel: has the other end closed already, and did it take a byte of what we sent.
"""

import asyncio
import select
import socket
import struct
from typing import Final

# Linux tells of a FIN by itself; elsewhere anything to read on an idle connection is a bad sign.
_CLOSING: Final[int] = getattr(select, "POLLRDHUP", select.POLLIN)
_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
_INFO_BYTES: Final = 128
_BYTES_ACKED: Final = struct.Struct("=Q")  # of struct tcp_info, linux/tcp.h, since Linux 4.1
_BYTES_ACKED_AT: Final = 120
_SYN: Final = 1  # counts as the first byte


class KernelView:
    """Of one connected socket, for as long as its transport is open."""

    __slots__ = ("_is_plain", "_poll", "_socket")

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._socket = transport.get_extra_info("socket")
        self._is_plain = transport.get_extra_info("sslcontext") is None
        self._poll = select.poll()
        self._poll.register(self._socket.fileno(), _CLOSING)

    @property
    def is_closing(self) -> bool:
        """Whether the other end has closed, or the connection broke. Costs a microsecond."""
        return bool(self._poll.poll(0))

    def took_no_more_than(self, sent_bytes: int) -> bool:
        """Whether the other end's kernel has certainly got nothing behind our first bytes.

        False where nobody can tell: encrypted, or on a system that does not count.
        """
        if not self._is_plain or _TCP_INFO is None:
            return False
        info = self._socket.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _INFO_BYTES)
        if len(info) < _INFO_BYTES:
            return False
        acknowledged: int = _BYTES_ACKED.unpack_from(info, _BYTES_ACKED_AT)[0]
        return 0 < acknowledged <= sent_bytes + _SYN
