import pytest

from keys.networks import address_of, network_of


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.5", "10.0.0.5/32"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("2001:DB8::1", "2001:db8::1/128"),
        ("::ffff:10.0.0.5", "10.0.0.5/32"),
        ("::ffff:10.1.0.0/112", "10.1.0.0/16"),
        ("::/0", "::/0"),  # IPv6 only, as it says
    ],
)
def test_a_range_is_read_in_the_family_that_it_means(text: str, network: str) -> None:
    assert str(network_of(text)) == network


@pytest.mark.parametrize("text", ["", "proxy", "10.0.0.0/33", "10.0.0", "::g"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        network_of(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("::FFFF:0a00:0005", "10.0.0.5"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("010.0.0.5", None),
        ("10.0.0.5/32", None),
        ("", None),
    ],
)
def test_an_address_is_read_in_the_family_that_it_means(text: str, address: str | None) -> None:
    assert str(address_of(text)) == str(address)
