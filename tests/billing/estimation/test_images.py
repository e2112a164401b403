import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.estimation.images import HEADER_BYTES, Image, fit, read_image, tiles

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", 800, 400)
GIF = b"GIF89a" + struct.pack("<HH", 320, 200)
WEBP_LOSSY = b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + struct.pack("<HH", 640, 480)
WEBP_LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + ((639) | (479 << 14)).to_bytes(4, "little")
WEBP_EXTENDED = (
    b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")
)
FRAME = b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 360, 540) + b"\0" * 8
JPEG = b"\xff\xd8" + b"\xff\xe1" + struct.pack(">H", 3_000) + b"\0" * 2_998 + b"\xff" + FRAME


def data_url(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64," + base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("content", "size"),
    [
        (PNG, (800, 400)),
        (GIF, (320, 200)),
        (WEBP_LOSSY, (640, 480)),
        (WEBP_LOSSLESS, (640, 480)),
        (WEBP_EXTENDED, (640, 480)),
        (JPEG, (540, 360)),
    ],
    ids=["png", "gif", "webp-lossy", "webp-lossless", "webp-extended", "jpeg"],
)
def test_the_size_is_read_from_the_header(content: bytes, size: tuple[int, int]) -> None:
    assert read_image(data_url(content + b"\0" * 64)) == Image(*size)


def test_bare_base64_is_read_too() -> None:
    assert read_image(base64.b64encode(PNG).decode()) == Image(800, 400)


def test_low_detail_is_kept() -> None:
    assert read_image(data_url(PNG), detail="low") == Image(800, 400, low_detail=True)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.test/cat.png",
        "data:image/png;base64," + "A" * 1_900_000,
        "data:image/png;base64,not base64!",
        "data:no comma",
        data_url(PNG[:20]),
        data_url(b"\xff\xd8\xff\xe1\xff\xff"),
        data_url(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 2**31, 1)),
        "",
    ],
    ids=["link", "endless", "not-base64", "no-comma", "cut", "cut-jpeg", "too-wide", "empty"],
)
def test_an_image_that_says_no_size_has_none(url: str) -> None:
    assert read_image(url) == Image()


@given(
    st.binary(max_size=200), st.sampled_from([b"", PNG[:12], GIF[:5], WEBP_LOSSY[:14], JPEG[:2]])
)
def test_no_content_raises(content: bytes, head: bytes) -> None:
    image = read_image(data_url(head + content))
    assert image.width >= 0


def test_only_the_first_bytes_are_decoded() -> None:
    late = b"\xff\xd8" + (b"\xff\xfe" + struct.pack(">H", 65_000) + b"\0" * 64_998) * 2 + FRAME
    assert len(late) > HEADER_BYTES
    assert read_image(data_url(late)) == Image()


def test_fit_keeps_the_proportion_and_never_enlarges() -> None:
    assert fit(4_096, 1_024, 2_048) == (2_048, 512)
    assert fit(100, 50, 2_048) == (100, 50)
    assert fit(60_000, 1, 2_048) == (2_048, 1)


def test_tiles_cover_the_image() -> None:
    assert tiles(512, 512, 512) == 1
    assert tiles(513, 1, 512) == 2
