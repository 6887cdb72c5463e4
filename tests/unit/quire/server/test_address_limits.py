"""Limits of the connections from one address."""

import pytest

from quire.server.connection_context import AddressLimits, plain_address


def test_an_address_has_at_most_so_many_connections() -> None:
    limits = AddressLimits(2)
    assert [limits.refusal("a", 0.0) is None for _ in range(3)] == [True, True, False]
    assert limits.refusal("a", 0.0) == "the address has too many connections"
    assert limits.refusal("b", 0.0) is None
    limits.release("a")
    assert [limits.refusal("a", 0.0) is None for _ in range(2)] == [True, False]
    for address in ("a", "a", "b"):
        limits.release(address)
    assert not limits._shares._of_holder


def test_without_limits_nothing_is_kept() -> None:
    limits = AddressLimits(0)
    assert all(limits.refusal("a", 0.0) is None for _ in range(1_000))
    limits.release("a")
    assert not limits._shares._of_holder


def test_a_refused_connection_is_not_counted() -> None:
    limits, asked = AddressLimits(1), list[tuple[str, float]]()

    def is_within_rate(address: str, now_s: float) -> bool:
        asked.append((address, now_s))
        return now_s > 1.0

    limits.is_within_rate = is_within_rate
    assert limits.refusal("a", 1.0) == "the address makes connections too fast"
    assert limits.refusal("a", 2.0) is None
    assert limits.refusal("a", 3.0) == "the address has too many connections"
    assert asked == [("a", 1.0), ("a", 2.0)], "the rate is not used by what is refused anyway"


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:a00:1", "::ffff:a00:1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::1", "::1"),
    ],
)
def test_addresses_have_one_form(host: str, plain: str) -> None:
    assert plain_address(host) == plain
