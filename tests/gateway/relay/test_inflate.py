import gzip
import zlib

import pytest

from gateway.relay.inflate import InflatedTooLargeError, InflateError, Inflater

PLAIN = b"the same again, " * 100


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(PLAIN)),
        ("x-gzip", gzip.compress(PLAIN[:500]) + gzip.compress(PLAIN[500:])),
        ("deflate", zlib.compress(PLAIN)),
        (" Deflate ", raw_deflate(PLAIN)),
    ],
    ids=["gzip", "two gzips", "deflate", "raw deflate"],
)
def test_any_cut_gives_the_same(encoding, packed, step):
    inflater = Inflater(encoding, base_bytes=10_000, ratio=0)
    pieces = [inflater.feed(packed[at : at + step]) for at in range(0, len(packed), step)]
    assert b"".join(pieces) == PLAIN
    assert inflater.ended


def test_half_a_member_has_not_ended():
    inflater = Inflater("gzip", base_bytes=10_000, ratio=0)
    inflater.feed(gzip.compress(PLAIN)[:-1])
    assert not inflater.ended
    one_byte = Inflater("gzip", base_bytes=10_000, ratio=0)
    one_byte.feed(b"\x1f")
    assert not one_byte.ended


def test_more_than_the_base_is_refused():
    inflater = Inflater("gzip", base_bytes=len(PLAIN) - 1, ratio=0)
    with pytest.raises(InflatedTooLargeError):
        inflater.feed(gzip.compress(PLAIN))


def test_exactly_the_base_is_allowed():
    assert Inflater("gzip", base_bytes=len(PLAIN), ratio=0).feed(gzip.compress(PLAIN)) == PLAIN


def test_the_ratio_allows_more_for_more_input():
    packed = gzip.compress(PLAIN)
    assert Inflater("gzip", base_bytes=0, ratio=100).feed(packed) == PLAIN
    with pytest.raises(InflatedTooLargeError):
        Inflater("gzip", base_bytes=0, ratio=2).feed(packed)


@pytest.mark.parametrize("data", [b"junk", gzip.compress(PLAIN) + b"junk"], ids=["all", "end"])
def test_damaged_data_is_refused(data):
    with pytest.raises(InflateError):
        Inflater("gzip", base_bytes=10_000, ratio=0).feed(data)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", ""])
def test_other_encodings_are_refused(encoding):
    with pytest.raises(InflateError):
        Inflater(encoding, base_bytes=1, ratio=0)
