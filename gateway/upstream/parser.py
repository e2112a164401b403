"""The sans-IO half: bytes of one response in, its head and body out.

llhttp (through httptools) does the reading. What it leaves to us is here: bounds, 1xx answers,
bytes after the end, and what the end of a connection means for a body without a length.
"""

from typing import Final

import httptools

from gateway.upstream.errors import ProtocolError

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 256
SWITCHING_PROTOCOLS: Final = 101
FIRST_FINAL_STATUS: Final = 200


class _Refused(Exception):
    """Stops llhttp in the middle of its input."""


class ResponseParser:
    """Read one response after another on one connection; call `begin` before each.

    `body_pieces` collects what was decoded and is emptied by `take_body`. After `complete`,
    `keep_alive` says whether the connection may carry another request: never when a byte
    followed the answer.
    """

    __slots__ = (
        "_bare_bytes",
        "_is_informational",
        "_parser",
        "body_pieces",
        "complete",
        "head_complete",
        "headers",
        "keep_alive",
        "on_body",
        "status",
    )

    def __init__(self) -> None:
        self.body_pieces: list[bytes] = []
        # llhttp calls this once a chunk; a list's own append costs no Python frame.
        self.on_body = self.body_pieces.append
        self._parser = httptools.HttpResponseParser(self)
        # RFC 9112 §2.2 lets a reader take a lone LF; padded chunk sizes are met in the wild.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self.begin()

    @property
    def heard_nothing(self) -> bool:
        """Whether no byte has come since `begin`."""
        return not self._bare_bytes and not self.head_complete

    def begin(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.head_complete = False
        self.complete = False
        self.keep_alive = False
        self._is_informational = False
        self._bare_bytes = 0

    def feed(self, data: bytes) -> None:
        """Raise ProtocolError when `data` makes the response unreadable.

        Body decoded before the fault stays in `body_pieces`.
        """
        self._bare_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keep_alive = False
            if not self.complete:
                raise ProtocolError(_words(error), request_sent=True) from error
        if self.body_pieces:
            self._bare_bytes = 0
        elif self._bare_bytes > MAX_HEAD_BYTES and not self.complete:
            # A head, a chunk extension or a trailer that never ends.
            raise ProtocolError("too many bytes without a body", request_sent=True)

    def take_body(self) -> bytes:
        pieces = self.body_pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return body

    def ends_with_connection(self) -> bool:
        """Whether an orderly close is this body's only end (RFC 9112 §6.3, rule 8)."""
        if not self.head_complete or self.complete:
            return False
        codings = b""
        for name, value in self.headers:
            if name == b"content-length":
                return False
            if name == b"transfer-encoding":
                codings = value
        return codings.rpartition(b",")[2].strip().lower() != b"chunked"

    def detach(self) -> None:
        """Drop llhttp's references back to us, so that a closed connection frees at once."""
        del self._parser

    def on_message_begin(self) -> None:
        if self.complete:
            raise _Refused("bytes after the end of the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_complete:  # trailers are read past
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if len(self.headers) > MAX_HEADERS:
            raise _Refused("too many headers")
        if self._bare_bytes > MAX_HEAD_BYTES and _size_bytes(self.headers) > MAX_HEAD_BYTES:
            raise _Refused("the headers are too large")
        if status == SWITCHING_PROTOCOLS:
            raise _Refused("the vendor switched protocols unasked")
        self._is_informational = status < FIRST_FINAL_STATUS
        if self._is_informational:
            self.headers = []
            return
        self.status = status
        self.head_complete = True
        self._bare_bytes = 0

    def on_message_complete(self) -> None:
        if not self._is_informational:
            self.keep_alive = self._parser.should_keep_alive()
            self.complete = True


def _size_bytes(headers: list[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def _words(error: Exception) -> str:
    reason = error.__context__
    return str(reason) if isinstance(reason, _Refused) else f"not HTTP/1.x: {error}"
