"""Sizes of images in a prompt, read from the first bytes of inline data; nothing is fetched.

A remote image, or a format whose header we do not read, has no size: families then charge the
most that one image can cost.
"""

import base64
import binascii
import struct
from dataclasses import dataclass

HEADER_BYTES = 65_536
"""How far into an image its size is looked for: a JPEG keeps its EXIF block before it."""
MAX_DATA_URL_PREFIX_CHARS = 256
MAX_SIDE_PIXELS = 65_535


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a prompt; `width` and `height` are 0 where they are not known."""

    width: int = 0
    height: int = 0
    low_detail: bool = False


def read_image(url: str, *, detail: object = None) -> Image:
    """The image behind a URL or base64 data."""
    width, height = _size(_header(url))
    return Image(width, height, low_detail=detail == "low")


def _header(url: str) -> bytes:
    start = 0
    if url[:5].lower() == "data:":
        start = url.find(",", 0, MAX_DATA_URL_PREFIX_CHARS) + 1
        if not start:
            return b""
    elif "://" in url[:16]:
        return b""
    encoded = url[start : start + HEADER_BYTES // 3 * 4]
    encoded = encoded[: len(encoded) // 4 * 4]
    try:
        return base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return b""


def _size(data: bytes) -> tuple[int, int]:
    try:
        width, height = _png(data) or _gif(data) or _webp(data) or _jpeg(data) or (0, 0)
    except (struct.error, IndexError):
        return 0, 0
    if 0 < width <= MAX_SIDE_PIXELS and 0 < height <= MAX_SIDE_PIXELS:
        return width, height
    return 0, 0


def _png(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int] | None:
    if not data.startswith((b"GIF87a", b"GIF89a")):
        return None
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


_JPEG_MARK = 0xFF
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})


def _jpeg(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(b"\xff\xd8"):
        return None
    place = 2
    while place + 9 <= len(data):
        if data[place] != _JPEG_MARK:
            return None
        marker = data[place + 1]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        if marker == _JPEG_MARK:
            place += 1
        elif marker in _JPEG_BARE:
            place += 2
        else:
            place += 2 + int(struct.unpack_from(">H", data, place + 2)[0])
    return None


def fit(width: int, height: int, side: int) -> tuple[int, int]:
    """The size within a square of `side`, in the same proportion, never enlarged."""
    longest = max(width, height)
    if longest <= side:
        return width, height
    return max(1, width * side // longest), max(1, height * side // longest)


def tiles(width: int, height: int, tile: int) -> int:
    """Squares of `tile` pixels that cover the image."""
    return -(-width // tile) * -(-height // tile)
