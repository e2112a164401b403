import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.addresses import FORWARDED_HOPS_MAX, client_address


@pytest.fixture
def proxies(settings):
    def trust(*ranges: str) -> None:
        settings.TRUSTED_PROXIES = list(ranges)

    trust()
    return trust


@pytest.mark.parametrize("forwarded", ["", "10.0.0.5", "10.0.0.5, 1.2.3.4", "::ffff:10.0.0.5"])
def test_without_a_trusted_proxy_nobody_speaks_for_another(proxies, forwarded: str) -> None:
    assert client_address("127.0.0.1", forwarded) == "127.0.0.1"
    assert client_address("::ffff:127.0.0.1", forwarded) == "127.0.0.1"


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("10.0.0.5, 203.0.113.9", "203.0.113.9"),  # what a client wrote itself stands left
        ("10.0.0.5,203.0.113.9, 127.0.0.2", "203.0.113.9"),
        (" 203.0.113.9 ", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:DB8::1", "2001:db8::1"),
        ("127.0.0.3, 127.0.0.2", "127.0.0.3"),  # trusted all the way: the first of them
        ("", "127.0.0.1"),
        ("nonsense", "127.0.0.1"),
        ("203.0.113.9, nonsense", "127.0.0.1"),
        ("203.0.113.9, nonsense, 127.0.0.2", "127.0.0.2"),
        ("203.0.113.9,", "127.0.0.1"),
        ("203.0.113.9:4711", "127.0.0.1"),
    ],
)
def test_behind_a_trusted_proxy_the_first_untrusted_hop_from_the_right_is_the_client(
    proxies, forwarded: str, client: str
) -> None:
    proxies("127.0.0.0/8")
    assert client_address("127.0.0.1", forwarded) == client


def test_a_peer_that_is_no_trusted_proxy_is_the_client(proxies) -> None:
    proxies("127.0.0.0/8", "2001:db8::/32")
    assert client_address("203.0.113.9", "10.0.0.5") == "203.0.113.9"
    assert client_address("::ffff:203.0.113.9", "10.0.0.5") == "203.0.113.9"
    assert client_address("2001:db9::1", "10.0.0.5") == "2001:db9::1"


def test_proxies_are_known_in_both_families(proxies) -> None:
    proxies("127.0.0.1", "2001:db8::/32")
    assert client_address("::ffff:127.0.0.1", "203.0.113.9") == "203.0.113.9"
    assert client_address("2001:db8::1", "203.0.113.9") == "203.0.113.9"


def test_a_socket_without_an_address_is_trusted_with_nothing(proxies) -> None:
    proxies("127.0.0.1")
    assert client_address("", "10.0.0.5") == ""


def test_a_header_without_end_is_read_from_the_right_and_not_to_its_end(proxies) -> None:
    proxies("127.0.0.0/8")
    hops = ", ".join(["10.0.0.5", *["127.0.0.9"] * 10_000])
    assert client_address("127.0.0.1", hops) == "127.0.0.9"
    near = ", ".join(["10.0.0.5", *["127.0.0.9"] * (FORWARDED_HOPS_MAX - 1)])
    assert client_address("127.0.0.1", near) == "10.0.0.5"


@given(st.text(max_size=200))
def test_any_header_is_answered(forwarded: str) -> None:
    assert client_address("127.0.0.1", forwarded) == "127.0.0.1"
