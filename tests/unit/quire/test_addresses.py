"""Addresses: host and port are joined in one way, and split in the same way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.addresses import (
    PORT_MAX,
    in_brackets,
    is_loopback,
    is_wildcard,
    join_address,
    split_address,
    without_brackets,
)

HOSTS = st.ip_addresses().map(str) | st.from_regex(r"[a-z0-9.-]{1,40}", fullmatch=True)


@given(HOSTS, st.integers(0, PORT_MAX))
def test_what_was_joined_is_split(host: str, port: int) -> None:
    assert split_address(join_address(host, port)) == (host, port)
    assert without_brackets(in_brackets(host)) == host


@pytest.mark.parametrize(
    ("host", "address"),
    [("::1", "[::1]:3181"), ("127.0.0.1", "127.0.0.1:3181"), ("bookie-1", "bookie-1:3181")],
)
def test_only_an_ipv6_address_is_in_brackets(host: str, address: str) -> None:
    assert join_address(host, 3181) == address


@pytest.mark.parametrize(
    "text",
    ["", "host", ":1", "host:", "host:x", "host:65536", "host:²", "::1:3181", "[::1", "[host]:1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port, with an IPv6 address in brackets"):
        split_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.5.1", "::1", "localhost"])
def test_loopback_addresses(host: str) -> None:
    assert is_loopback(host)
    assert not is_wildcard(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_wildcard_addresses(host: str) -> None:
    assert is_wildcard(host)
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["10.1.2.3", "2001:db8::1", "localhost.example"])
def test_other_addresses(host: str) -> None:
    assert not is_wildcard(host)
    assert not is_loopback(host)
