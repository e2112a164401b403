import hashlib
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gateway.relay.capture import BLOCK_BYTES, Capture, unpack


def captured(*chunks: bytes, limit_bytes: int = 1_000_000) -> Capture:
    capture = Capture(limit_bytes)
    for chunk in chunks:
        capture.add(chunk)
    return capture


def test_what_passed_comes_back():
    chunks = [b"data: %d\n\n" % at for at in range(10_000)]
    capture = captured(*chunks)
    assert unpack(capture.frames()) == b"".join(chunks)
    assert capture.size_bytes == capture.kept_bytes == len(b"".join(chunks))
    assert capture.sha256 is None
    assert not capture.is_cut


def test_little_waits_uncompressed():
    capture = captured(*[b"x" * 1000] * 100)
    assert len(capture._pending) < BLOCK_BYTES
    assert len(capture.frames()) < 2000


def test_kept_frames_take_no_more_memory_than_they_are_long():
    tracemalloc.start()
    capture = Capture()
    for _ in range(1000):
        capture.add(b"x" * 16_384)
    taken_bytes, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken_bytes < len(capture.frames()) + 1000 * 100 + 50_000


def test_it_can_go_on_after_a_look():
    capture = captured(b"one ")
    assert unpack(capture.frames()) == b"one "
    capture.add(b"two")
    assert unpack(capture.frames()) == b"one two"


def test_looks_make_no_frames():
    """A slow stream is looked at after every event or two."""
    capture, seldom = Capture(), Capture()
    for at in range(400):
        event = b'data: {"id":"chatcmpl-1","choices":[{"delta":{"content":"%x"}}]}\n\n' % at**7
        capture.add(event)
        seldom.add(event)
        capture.frames()
    assert capture.frames() == seldom.frames()
    assert len(capture._frames) == capture.size_bytes // BLOCK_BYTES


def test_nothing_is_nothing():
    assert captured().frames() == b""
    assert unpack(b"") == b""


def test_beyond_the_limit_only_size_and_hash_are_kept():
    capture = captured(b"a" * 60, b"b" * 60, b"c" * 60, limit_bytes=100)
    assert unpack(capture.frames()) == b"a" * 60 + b"b" * 40
    assert (capture.size_bytes, capture.kept_bytes) == (180, 100)
    whole = b"a" * 60 + b"b" * 60 + b"c" * 60
    assert capture.sha256 == hashlib.sha256(whole).hexdigest()
    assert capture.is_cut


def test_the_limit_itself_is_not_cut():
    capture = captured(b"a" * 50, b"b" * 50, limit_bytes=100)
    assert not capture.is_cut
    assert capture.sha256 is None


def test_unpacking_is_bounded():
    assert unpack(captured(b"a" * 100).frames(), limit_bytes=10) == b"a" * 10


def test_damaged_frames_are_told():
    with pytest.raises(zstandard.ZstdError):
        unpack(b"junk and more junk")


@given(chunks=st.lists(st.binary(max_size=50)), limit=st.integers(1, 400))
def test_any_chunks_give_a_prefix_and_the_hash_of_all(chunks, limit):
    capture = captured(*chunks, limit_bytes=limit)
    whole = b"".join(chunks)
    assert unpack(capture.frames()) == whole[:limit]
    assert capture.kept_bytes == min(len(whole), limit)
    expected = hashlib.sha256(whole).hexdigest() if len(whole) > limit else None
    assert capture.sha256 == expected
