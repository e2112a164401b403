"""Undo gzip and deflate piece by piece, with a bound on how much may come out."""

import zlib

GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
ZLIB_WINDOW_BITS = zlib.MAX_WBITS
RAW_WINDOW_BITS = -zlib.MAX_WBITS

_ENCODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}


class InflateError(ValueError):
    """The compressed data is damaged, or of an encoding that is not spoken here."""


class InflatedTooLargeError(ValueError):
    """More would come out than is allowed."""


class Inflater:
    """One compressed body.

    At most `base_bytes + ratio * bytes fed so far` may come out, so that a small body cannot fill
    the memory. `ended` is True where the data stops at the end of a compressed member.
    """

    __slots__ = ("_allowed_bytes", "_decoder", "_encoding", "_head", "_out_bytes", "_ratio")

    def __init__(self, encoding: str, *, base_bytes: int, ratio: int) -> None:
        name = _ENCODINGS.get(encoding.strip().lower())
        if name is None:
            raise InflateError("unknown content encoding")
        self._encoding = name
        self._allowed_bytes = base_bytes
        self._ratio = ratio
        self._out_bytes = 0
        self._head = b""
        self._decoder: zlib._Decompress | None = None

    @property
    def ended(self) -> bool:
        return self._decoder is None and not self._head

    def feed(self, data: bytes) -> bytes:
        """Return what came out; raise `InflateError` or `InflatedTooLargeError`."""
        self._allowed_bytes += self._ratio * len(data)
        out = bytearray()
        data = self._head + data
        self._head = b""
        while data:
            if self._decoder is None:
                if len(data) < 2:  # noqa: PLR2004 - the two bytes that tell zlib from raw
                    self._head = data
                    break
                self._decoder = zlib.decompressobj(self._window_bits(data))
            data = self._step(self._decoder, data, out)
        return bytes(out)

    def _step(self, decoder: "zlib._Decompress", data: bytes, out: bytearray) -> bytes:
        """Inflate one step and return what is left to do."""
        try:
            piece = decoder.decompress(data, self._allowed_bytes - self._out_bytes + 1)
        except zlib.error as error:
            raise InflateError("damaged compressed data") from error
        self._out_bytes += len(piece)
        if self._out_bytes > self._allowed_bytes:
            raise InflatedTooLargeError
        out += piece
        if decoder.eof:
            self._decoder = None
            return decoder.unused_data
        return decoder.unconsumed_tail

    def _window_bits(self, head: bytes) -> int:
        if self._encoding == "gzip":
            return GZIP_WINDOW_BITS
        # "deflate" should mean zlib, and half of the world sends it without the zlib header.
        is_zlib = head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(head[:2], "big") % 31 == 0
        return ZLIB_WINDOW_BITS if is_zlib else RAW_WINDOW_BITS
