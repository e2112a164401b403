import json

import pytest

from gateway.relay.json_text import MAX_DEPTH, decode, encode, replace_identity


def test_legal_json_is_read():
    assert decode(b'{"a":[1,2.5,"\\u00e9"]}') == {"a": [1, 2.5, "é"]}


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e999"])
def test_numbers_that_are_none_become_null(word):
    assert decode(b'{"a":%s,"b":1.5}' % word) == {"a": None, "b": 1.5}


def test_half_a_surrogate_pair_is_kept_and_written_back():
    value = decode(rb'{"a":"\ud83d"}')
    assert value == {"a": "\ud83d"}
    assert encode(value) == rb'{"a":"\ud83d"}'


def test_two_halves_that_meet_are_one_character_again():
    halves = decode(rb'"\ud83d"') + decode(rb'"\ude00"')
    assert json.loads(encode({"a": halves})) == {"a": "😀"}


def test_integers_of_any_size_are_written_in_full():
    assert encode({"a": 10**30}) == b'{"a":1000000000000000000000000000000}'


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"nope", b'{"a":1}x'])
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        decode(text)


def test_a_byte_that_is_no_utf8_becomes_a_replacement_character():
    assert decode(b'{"a":"caf\xe9"}') == {"a": "caf\ufffd"}


def test_control_characters_may_stand_in_texts():
    assert decode(b'{"a":"x\ty\nz"}') == {"a": "x\ty\nz"}


def test_an_integer_without_end_becomes_null():
    assert decode(b'{"a":%s,"b":NaN}' % (b"1" * 5_000)) == {"a": None, "b": None}


@pytest.mark.parametrize("pair", [b"[]", b'{"a":}'])
def test_nesting_is_bounded_where_all_that_follows_can_bear_it(pair):
    opening, closing = pair[:-1], pair[-1:]
    deepest = opening * MAX_DEPTH + b"1" * (pair != b"[]") + closing * MAX_DEPTH
    assert json.loads(encode(decode(deepest))) == json.loads(deepest)
    for more in (1, 100, 800, 5_000):
        deeper = opening * (MAX_DEPTH + more) + b"1" + closing * (MAX_DEPTH + more)
        with pytest.raises(ValueError, match=r"deep|recursion"):
            decode(deeper)


def test_wide_is_not_deep():
    wide = json.dumps([[{}]] * 500).encode()
    assert decode(wide) == json.loads(wide)


class TestReplaceIdentity:
    def replaced(self, text: bytes, **changes: str) -> bytes | None:
        return replace_identity(text, json.loads(text), **changes)

    def test_only_the_names_change(self):
        text = b'{ "id": "v1","model":"m/1", "n":1.50, "t":"\\u00e9" }'
        assert self.replaced(text, id="ours", model="alias") == (
            b'{ "id":"ours","model":"alias", "n":1.50, "t":"\\u00e9" }'
        )

    def test_a_text_that_looks_like_a_name_is_left_alone(self):
        text = b'{"id":"v1","t":"\\"id\\":\\"v1\\""}'
        assert self.replaced(text, id="x") == b'{"id":"x","t":"\\"id\\":\\"v1\\""}'

    @pytest.mark.parametrize(
        "text",
        [
            b'{"a":1}',
            b'{"id":5}',
            b'{"id":"v1","call":{"id":"v1"}}',
            b'{"i\\u0064":"v1","call":{"id":"v1"}}',
            b'{"id":"v\\u0031"}',
            b'{"id" : "v1"}',
            b'{"id":"v1","call":{"id": "v1"}}',
        ],
    )
    def test_where_it_is_not_clear_nothing_is_replaced(self, text):
        assert self.replaced(text, id="x") is None
