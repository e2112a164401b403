"""Keep what passed by, bounded and compressed, until someone stores it or throws it away."""

import hashlib
import io
import threading

import zstandard

CAPTURE_LIMIT_BYTES = 64 * 1024 * 1024
"""Raw bytes kept of one body; of the rest only the count and the hash are kept."""
BLOCK_BYTES = 16 * 1024
"""Raw bytes that are compressed at once: as little work in one go, as little waiting memory."""
COMPRESSION_LEVEL = 1
HASH_STEP_BYTES = 1024 * 1024


Mark = tuple[int, int]
"""How far a capture was read: whole blocks, and bytes of the next one."""
START: Mark = (0, 0)


class _Compressors(threading.local):
    """One compressor a thread: it may be shared by captures, but not used by two at once."""

    def __init__(self) -> None:
        self.one = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL)


_compressors = _Compressors()


class Capture:
    """One body as it passes by.

    `size_bytes` counts everything that passed, `kept_bytes` what `frames()` unpacks to.
    """

    __slots__ = ("_frames", "_hash", "_limit_bytes", "_pending", "kept_bytes", "size_bytes")

    def __init__(self, limit_bytes: int = CAPTURE_LIMIT_BYTES) -> None:
        self.size_bytes = 0
        self.kept_bytes = 0
        self._limit_bytes = limit_bytes
        self._pending = bytearray()
        self._frames: list[bytes] = []
        self._hash: hashlib._Hash | None = None

    def add(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        if self.size_bytes > self._limit_bytes:
            chunk = self._cut(chunk)
        self.kept_bytes += len(chunk)
        self._pending += chunk
        if len(self._pending) >= BLOCK_BYTES:
            self._compress_pending()

    def frames(self) -> bytes:
        """Return what is kept as zstandard frames, one after the other; see `unpack`.

        What waits for its block goes on waiting: a long stream is looked at every few seconds,
        and a frame for each look would be larger than what it holds.
        """
        if not self._pending:
            return b"".join(self._frames)
        return b"".join((*self._frames, _frame(self._pending)))

    def parts(self) -> tuple[bytes, bytes]:
        """Return the frames so far, and what is kept behind them uncompressed."""
        return b"".join(self._frames), bytes(self._pending)

    def since(self, mark: Mark) -> tuple[bytes, Mark]:
        """Return what was kept after an earlier `mark`, unpacked, and the mark of now."""
        block, offset = mark
        newer = unpack(b"".join(self._frames[block:])) + self._pending
        return newer[offset:], (len(self._frames), len(self._pending))

    @property
    def is_cut(self) -> bool:
        return self.size_bytes > self._limit_bytes

    @property
    def sha256(self) -> str | None:
        """The hash of the whole body in hex where it was cut, else None."""
        return None if self._hash is None else self._hash.hexdigest()

    def _compress_pending(self) -> None:
        if self._pending:
            # The compressor's own bytes keep the room of the worst case; a copy has its true size.
            self._frames.append(bytes(memoryview(_frame(self._pending))))
            self._pending = bytearray()

    def _cut(self, chunk: bytes) -> bytes:
        """Hash the chunk and return the part of it that still fits."""
        if self._hash is None:
            # Most bodies never get here, so the hash of what passed is made up for only now.
            self._compress_pending()
            self._hash = hashlib.sha256()
            for frame in self._frames:
                self._hash.update(unpack(frame))
        self._hash.update(chunk)
        return chunk[: self._limit_bytes - self.kept_bytes]


def _frame(data: bytearray) -> bytes:
    return _compressors.one.compress(data)


def unpack(frames: bytes, limit_bytes: int = CAPTURE_LIMIT_BYTES) -> bytes:
    """Return the body that `Capture.frames` packed, at most `limit_bytes` of it.

    Raises `zstandard.ZstdError` where the frames are damaged.
    """
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(frames), read_across_frames=True)
    out = bytearray()
    while len(out) < limit_bytes:
        block = reader.read(min(HASH_STEP_BYTES, limit_bytes - len(out)))
        if not block:
            break
        out += block
    return bytes(out)
