"""What can go wrong between us and a vendor, typed once.

Every error says two things that decide who pays and whether another route may be tried:
`request_sent` (a byte of the request was handed to the socket, and nothing proves that the vendor
did not get it: it may have worked and billed) and `response_started` (the head of an answer
arrived).
"""


class UpstreamError(Exception):
    """Base of all; the message names no header, body or credential."""

    def __init__(
        self, message: str, *, request_sent: bool = False, response_started: bool = False
    ) -> None:
        super().__init__(message)
        self.request_sent = request_sent
        self.response_started = response_started


class InvalidRequest(UpstreamError):
    """The caller's path or headers cannot be sent; no connection was touched."""


class PoolExhausted(UpstreamError):
    """No connection became free within the bounded wait; nothing was sent."""


class ConnectFailed(UpstreamError):
    """No connection, no TLS, or a client that is closed; nothing was sent."""


class ConnectTimeout(UpstreamError):
    """No connection (name, TCP and TLS together) within `connect_s`; nothing was sent."""


class FirstByteTimeout(UpstreamError):
    """The request went out and no byte of a body came within `first_byte_s`."""


class IdleTimeout(UpstreamError):
    """The vendor fell silent for `idle_s` in the middle of its body."""


class TotalTimeout(UpstreamError):
    """`total_s` passed since `open` was called, wherever the exchange was."""


class ConnectionLost(UpstreamError):
    """The connection ended before the answer did: reset, early close, or aborted by us."""


class ProtocolError(UpstreamError):
    """What came is not HTTP/1.x, or its head is beyond our bounds."""
