from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.addresses import FORWARDED_HOPS_MAX, networks, true_scope


def scope(peer: str | None, *headers: tuple[str, str]) -> dict[str, Any]:
    return {
        "type": "http",
        "scheme": "http",
        "client": None if peer is None else (peer, 4711),
        "headers": [(name.encode(), value.encode("utf-8")) for name, value in headers],
    }


def client_of(peer: str, *forwarded: str) -> str:
    lines = [("x-forwarded-for", text) for text in forwarded]
    return true_scope(scope(peer, *lines))["client"][0]


def scheme_of(peer: str, *forwarded: str) -> str:
    lines = [("x-forwarded-proto", text) for text in forwarded]
    return true_scope(scope(peer, *lines))["scheme"]


@pytest.fixture
def proxies(settings):
    def trust(*ranges: str) -> None:
        settings.TRUSTED_PROXIES = networks(ranges)

    trust()
    return trust


@pytest.mark.parametrize("forwarded", ["", "10.0.0.5", "10.0.0.5, 1.2.3.4", "::ffff:10.0.0.5"])
def test_without_a_trusted_proxy_nobody_speaks_for_another(proxies, forwarded: str) -> None:
    assert client_of("127.0.0.1", forwarded) == "127.0.0.1"
    assert client_of("::ffff:127.0.0.1", forwarded) == "127.0.0.1"
    assert client_of("::1", forwarded) == "::1"


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("10.0.0.5, 203.0.113.9", "203.0.113.9"),  # what a client wrote itself stands left
        ("10.0.0.5,203.0.113.9, 127.0.0.2", "203.0.113.9"),
        (" 203.0.113.9 ", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("::FFFF:CB00:7109", "203.0.113.9"),
        ("2001:DB8::1", "2001:db8::1"),
        ("127.0.0.3, 127.0.0.2", "127.0.0.3"),  # trusted all the way: the first of them
        ("203.0.113.9:4711", "203.0.113.9"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("", "127.0.0.1"),
        ("nonsense", "127.0.0.1"),
        ("unknown", "127.0.0.1"),
        ("203.0.113.9, nonsense", "127.0.0.1"),
        ("203.0.113.9, nonsense, 127.0.0.2", "127.0.0.2"),
        ("203.0.113.9,", "127.0.0.1"),
        ("203.0.113.9:http", "127.0.0.1"),
        ("[2001:db8::1", "2001:db8::1"),
        ("[]:80", "127.0.0.1"),
        ("1.2.3", "127.0.0.1"),
        ("0xCB.0.113.9", "127.0.0.1"),
        ("203.0.113.09", "127.0.0.1"),
        ("203.0.113.9/32", "127.0.0.1"),
        ("٢٠٣.0.113.9", "127.0.0.1"),
    ],
)
def test_behind_a_trusted_proxy_the_first_untrusted_hop_from_the_right_is_the_client(
    proxies, forwarded: str, client: str
) -> None:
    proxies("127.0.0.0/8")
    assert client_of("127.0.0.1", forwarded) == client


def test_several_lines_are_one_list(proxies) -> None:
    proxies("127.0.0.0/8")
    assert client_of("127.0.0.1", "10.0.0.5", "203.0.113.9", "127.0.0.2") == "203.0.113.9"
    assert client_of("127.0.0.1", "203.0.113.9, 127.0.0.3", "127.0.0.2") == "203.0.113.9"


def test_a_peer_that_is_no_trusted_proxy_is_the_client(proxies) -> None:
    proxies("127.0.0.0/8", "2001:db8::/32")
    assert client_of("203.0.113.9", "10.0.0.5") == "203.0.113.9"
    assert client_of("::ffff:203.0.113.9", "10.0.0.5") == "203.0.113.9"
    assert client_of("2001:db9::1", "10.0.0.5") == "2001:db9::1"


def test_proxies_are_known_in_both_families(proxies) -> None:
    proxies("127.0.0.1", "2001:db8::/32")
    assert client_of("::ffff:127.0.0.1", "203.0.113.9") == "203.0.113.9"
    assert client_of("2001:db8::1", "203.0.113.9") == "203.0.113.9"
    assert client_of("2001:db8::1", "2001:db9::1, 2001:db8::2") == "2001:db9::1"


def test_a_socket_without_an_address_is_trusted_with_nothing(proxies) -> None:
    proxies("127.0.0.1")
    assert client_of("", "10.0.0.5") == ""
    unix = scope(None, ("x-forwarded-for", "10.0.0.5"), ("x-forwarded-proto", "https"))
    assert true_scope(unix) == unix


def test_a_header_without_end_is_read_from_the_right_and_not_to_its_end(proxies) -> None:
    proxies("127.0.0.0/8")
    hops = ", ".join(["10.0.0.5", *["127.0.0.9"] * 10_000])
    assert client_of("127.0.0.1", hops) == "127.0.0.9"
    near = ", ".join(["10.0.0.5", *["127.0.0.9"] * (FORWARDED_HOPS_MAX - 1)])
    assert client_of("127.0.0.1", near) == "10.0.0.5"


@given(st.text(max_size=200))
def test_any_header_is_answered(forwarded: str) -> None:
    assert client_of("127.0.0.1", forwarded) == "127.0.0.1"


@given(st.lists(st.text(max_size=40), max_size=30))
def test_any_words_of_a_stranger_leave_him_who_he_is(lines: list[str]) -> None:
    from django.test import override_settings

    with override_settings(TRUSTED_PROXIES=networks(["127.0.0.0/8"])):
        assert client_of("127.0.0.1", *lines, "203.0.113.9") == "203.0.113.9"


# --- the scheme -------------------------------------------------------------------------------


def test_a_stranger_does_not_say_that_he_came_over_https(proxies) -> None:
    assert scheme_of("127.0.0.1", "https") == "http"
    proxies("127.0.0.0/8")
    assert scheme_of("203.0.113.9", "https") == "http"


@pytest.mark.parametrize(
    ("lines", "scheme"),
    [
        (["https"], "https"),
        (["HTTPS"], "https"),
        (["http"], "http"),
        (["http, https"], "https"),  # the nearest proxy's word
        (["https, http"], "http"),
        (["https", "http"], "http"),
        (["wss"], "http"),
        (["nonsense"], "http"),
        ([""], "http"),
        ([], "http"),
    ],
)
def test_a_trusted_proxy_says_over_what_the_client_came(proxies, lines, scheme: str) -> None:
    proxies("127.0.0.0/8")
    assert scheme_of("127.0.0.1", *lines) == scheme


@pytest.mark.parametrize(
    "header", ["forwarded", "via", "x-real-ip", "x-forwarded-host", "x-forwarded-port"]
)
def test_other_words_about_the_way_decide_nothing(proxies, header: str) -> None:
    proxies("127.0.0.0/8")
    came = scope("127.0.0.1", (header, "for=10.0.0.5;proto=https;host=evil.example"))
    seen = true_scope(came)
    assert (seen["client"][0], seen["scheme"]) == ("127.0.0.1", "http")
    assert seen["headers"] == came["headers"]


# --- the setting ------------------------------------------------------------------------------


def test_a_range_may_be_written_by_any_of_its_addresses() -> None:
    assert list(map(str, networks(["10.1.2.3/8", "::1"]))) == ["10.0.0.0/8", "::1/128"]


@pytest.mark.parametrize("text", ["caddy", "10.0.0.0/33", "10.0.0", "10.0.0.1-10.0.0.9"])
def test_what_is_no_range_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        networks(["127.0.0.1", text])
