import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from keys import secrets
from keys.secrets import ALPHABET, fingerprint, make, matches, public_id_of


@pytest.fixture(autouse=True)
def peppers(settings) -> None:
    settings.KEY_PEPPERS = ["first pepper", "second pepper"]


@pytest.mark.parametrize("kind", ["live", "test", "sys"])
def test_a_key_has_its_shape(kind: str) -> None:
    secret = make(kind)

    head, said_kind, public_id, tail = secret.text.split("_")
    assert (head, said_kind, public_id) == ("sk", kind, secret.public_id)
    assert len(public_id) == 10
    assert len(tail) == 27 + 6
    assert set(public_id + tail) <= set(ALPHABET)
    assert len(secret.text) <= secrets.KEY_LENGTH_MAX
    assert public_id_of(secret.text) == public_id
    assert secret.last_four == secret.text[-4:]


def test_the_secret_alone_has_160_bits() -> None:
    assert len(ALPHABET) ** secrets.SECRET_LENGTH > 2**160


def test_no_two_keys_are_alike() -> None:
    made = [make("live") for _ in range(200)]
    assert len({one.text for one in made}) == len({one.public_id for one in made}) == 200


@pytest.mark.parametrize("kind", ["live", "test", "sys"])
def test_every_single_typo_is_told_without_a_database(kind: str) -> None:
    text = make(kind).text
    for place in range(len(text)):
        other = "A" if text[place] != "A" else "B"
        assert public_id_of(text[:place] + other + text[place + 1 :]) is None


def test_two_characters_in_the_wrong_order_are_told(settings) -> None:
    text = make("live").text
    for place in range(8, len(text) - 1):
        first, second = text[place], text[place + 1]
        if first != second:
            assert public_id_of(text[:place] + second + first + text[place + 2 :]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sk_live_",
        "sk-proj-" + "a" * 48,
        "sk-ant-api03-" + "A" * 80,
        "sk_live_51H8abcdefghijklmnopqrstuvwxyz0123456789",  # another company's live key
        "AIzaSy" + "a" * 33,
        "gsk_" + "a" * 48,
        "Bearer sk_live_x",
        "sk_live_0123456789_" + "a" * 33,
        "x" * 1_000_000,
        "ſk_live_0123456789_" + "a" * 33,
    ],
)
def test_other_keys_are_none_of_ours(text: str) -> None:
    assert public_id_of(text) is None


@pytest.mark.parametrize("around", ["{}\n", " {}", "{} ", "{}\x00", "{}x"])
def test_what_stands_around_a_key_makes_it_none(around: str) -> None:
    assert public_id_of(around.format(make("live").text)) is None


def test_digits_of_other_scripts_are_no_digits_of_ours() -> None:
    text = make("live").text
    assert public_id_of(text.replace(text[8], "٣", 1)) is None


@given(st.text(max_size=80))
@profile(max_examples=50)
def test_any_text_is_answered(text: str) -> None:
    assert public_id_of(text) is None


def test_a_key_matches_its_own_fingerprint_only() -> None:
    one, other = make("live"), make("live")
    assert matches(one.text, one.fingerprint)
    assert not matches(other.text, one.fingerprint)
    assert not matches(one.text + "x", one.fingerprint)
    assert not matches("", one.fingerprint)
    assert len(one.fingerprint) == 32


def test_peppers_rotate(settings) -> None:
    """A new pepper in front signs new keys while keys made under the old one go on working."""
    settings.KEY_PEPPERS = ["old"]
    before = make("live")
    settings.KEY_PEPPERS = ["new", "old"]
    after = make("live")
    assert matches(before.text, before.fingerprint)
    assert matches(after.text, after.fingerprint)
    assert after.fingerprint == fingerprint(after.text, "new")
    settings.KEY_PEPPERS = ["new"]
    assert not matches(before.text, before.fingerprint)
    assert matches(after.text, after.fingerprint)


def test_without_the_pepper_a_stored_fingerprint_proves_nothing(settings) -> None:
    secret = make("live")
    settings.KEY_PEPPERS = ["a thief's guess"]
    assert not matches(secret.text, secret.fingerprint)


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r}".format])
def test_a_secret_shows_itself_to_nobody(show) -> None:
    secret = make("live")
    assert show(secret) == f"NewSecret({secret.public_id})"
    assert secret.text[-33:] not in show([secret])
