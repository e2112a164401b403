import math
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.storable import encode_item, storable, storable_json


def test_text_is_made_storable() -> None:
    assert storable("a\x00b\ud83dc😀") == "a\ufffdb\ufffdc😀"
    assert storable_json({"a\x00": ["\x00", {"b": "\udc00"}, 1, None]}) == {
        "a\ufffd": ["\ufffd", {"b": "\ufffd"}, 1, None]
    }


def test_integers_beyond_64_bits_become_doubles() -> None:
    kept = [2**64 - 1, -(2**63), True, 0.5]
    assert storable_json(kept) == kept
    assert storable_json([2**64, -(2**63) - 1]) == [2.0**64, -(2.0**63)]
    assert storable_json(10**400) is None


def test_an_ordinary_item_is_written_as_it_is() -> None:
    item = {"id": UUID(int=1), "words": "a\\u0000b", "flags": ("x",)}
    assert encode_item(item) == orjson.dumps(item)
    with pytest.raises(TypeError):
        encode_item({"id": object()})


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None) | st.sampled_from("\x00\ud800\udfff")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_every_item_is_written_and_reads_back_storable(item) -> None:
    read = orjson.loads(encode_item(item))
    assert storable_json(read) == read
    assert "\x00" not in str(read)
    assert all(math.isfinite(one) for one in read.values() if isinstance(one, float))
